"""A PostgreSQL cluster of a test's own: on loopback, a free port, a temporary folder.

It refuses to run as root, so as root it is run as the account `postgres`, which its package makes.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

ACCOUNT = "postgres"


def programs() -> Path | None:
    """The folder with initdb and postgres of the newest version, None where there is none."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    debian = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3])
    )
    return debian[-1].parent if debian else None


def needed() -> None:
    """Skip the test where no cluster can be started; fail it where the checks before a change run,
    which say whether they mean to go without."""
    if reason := why_not():
        required = os.environ.get("PACELINE_WITHOUT_POSTGRESQL") == "0"
        (pytest.fail if required else pytest.skip)(reason)


def why_not() -> str:
    """Why no cluster can be started here; empty where one can."""
    if programs() is None:
        return "PostgreSQL is not installed here (Debian: apt-get install postgresql)"
    try:
        import psycopg  # noqa: F401  MLflow asks for it by name when it connects
    except ImportError:
        return "psycopg is not installed here (the extra server)"
    return ""


@contextmanager
def cluster() -> Iterator[str]:
    """A new cluster; gives the URL of an empty database, and takes everything away afterwards."""
    bin_folder = programs()
    assert bin_folder is not None
    with TemporaryDirectory(prefix="paceline-postgres-") as name:
        folder = Path(name)
        if os.geteuid() == 0:
            shutil.chown(folder, ACCOUNT)
        data = folder / "data"
        _run([bin_folder / "initdb", "-D", data, "-A", "trust", "-U", ACCOUNT, "--no-sync"], folder)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        settings = f"-c listen_addresses=127.0.0.1 -p {port} -k {folder} -c fsync=off"
        control: list[str | Path] = [bin_folder / "pg_ctl", "-D", data, "-w", "-t", "60"]
        _run([*control, "-o", settings, "-l", folder / "log", "start"], folder)
        try:
            yield f"postgresql://{ACCOUNT}@127.0.0.1:{port}/postgres"
        finally:
            _run([*control, "-m", "immediate", "stop"], folder)


def _run(argv: Sequence[str | Path], folder: Path) -> None:
    account = ACCOUNT if os.geteuid() == 0 else None
    done = subprocess.run(
        [str(word) for word in argv],
        cwd=folder,
        user=account,
        group=account,
        extra_groups=[] if account else None,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{argv[0]} ended with {done.returncode}: {done.stdout[-2000:]}")
