"""What the demo needs before it begins: libraries, and room on the disk. Writes nothing."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

from cli.exits import EXTRAS

SPACE_BYTES = 2_000_000_000  # a finished home holds 1.1 GB: two targets, answers with their states


def check_installed() -> None:
    """Raises RuntimeError naming all that is missing: each is needed, some only after minutes."""
    if missing := [library for library in EXTRAS if find_spec(library) is None]:
        raise RuntimeError(
            f"the demo needs {', '.join(missing)}, not installed here: pip install 'paceline[all]'"
        )


def check_space(home: Path, target: str | None) -> None:
    """Raises ValueError where there is too little room to begin; a demo that was begun goes on.

    `target` is the user's own: its releases are two more copies.
    """
    if (home / "demo").exists():
        return
    own = Path(target).expanduser().glob("*.safetensors") if target else ()
    wanted = SPACE_BYTES + 2 * sum(file.stat().st_size for file in own)
    there = next(
        folder for folder in (home.absolute(), *home.absolute().parents) if folder.is_dir()
    )
    free = shutil.disk_usage(there).free
    if free < wanted:
        raise ValueError(
            f"got {free / 1e9:.1f} GB free at {home}, wanted {wanted / 1e9:.1f} GB: make room, or "
            "choose another folder with --home"
        )
