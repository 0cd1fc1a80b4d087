"""Files that appear whole or not at all, so that a process may be killed at any moment."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Replace a file in one step, on the disk too: readers see the old text or the new."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:  # killed by a signal as well: nothing half written stays
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def sweep(folder: Path) -> None:
    """Remove what writers that were killed left half written, an hour and more ago."""
    for part in folder.glob(".*.part"):
        with suppress(FileNotFoundError):  # another sweeper was faster
            if part.stat().st_mtime < time.time() - 3600:
                part.unlink()
