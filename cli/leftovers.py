"""Which child processes an earlier run of this home left behind, and how to end exactly those.

A process id alone proves nothing, since ids are used again: a process is ours only when its id and
the moment it started are the ones that were recorded. On Linux that moment is exact to a hundredth
of a second since a known boot; elsewhere only to a second, so the command line has to be the same.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

BOOT = Path("/proc/sys/kernel/random/boot_id")  # start times count from boot


def identity(pid: int) -> str | None:
    """What tells this process from every other one; None when there is no such process."""
    if sys.platform.startswith("linux"):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            boot = BOOT.read_text().strip()
        except OSError:
            return None
        if fields[0] == "Z":  # ended, only not yet fetched by its parent
            return None
        return f"{boot} {fields[19]}"  # not its command: it is recorded before it becomes that
    told = subprocess.run(
        ["ps", "-p", str(pid), "-o", "lstart=,args="], capture_output=True, text=True, check=False
    )
    return told.stdout.strip() or None


def record(path: Path, name: str, pid: int) -> None:
    """Note that `name` runs as `pid`, so that the next start can end it if we cannot."""
    known = _read(path)
    found = identity(pid)
    if found is not None:
        known[name] = {"pid": pid, "identity": found}
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(known, indent=1))
        os.replace(beside, path)


def end_leftovers(path: Path, *, grace_seconds: float = 10.0) -> list[str]:
    """End what is recorded in `path` and still runs; the names of what had to be ended.

    Children get SIGTERM when their parent dies, so most are on their way out: a moment is left to
    them before the signal, and `grace_seconds` after it.
    """
    names = []
    for name, known in _read(path).items():
        pid = int(known["pid"])

        def ours(pid: int = pid, recorded: object = known["identity"]) -> bool:
            return identity(pid) == recorded

        if not _gone(ours, 2.0):
            names.append(name)
            for number, seconds in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, 5.0)):
                with suppress(ProcessLookupError):
                    if ours():
                        os.kill(pid, number)
                if _gone(ours, seconds):
                    break
        for worker in _workers(known, home=path.parent.parent):
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
    path.unlink(missing_ok=True)
    return names


def _workers(known: dict[str, str | int], home: Path) -> list[int]:
    """What a recorded child that is gone has left in its process group. Linux only.

    Ours beyond doubt: of its group, no older than it, and told the same home when it was started.
    """
    pid, boot, born = int(known["pid"]), *str(known["identity"]).partition(" ")[::2]
    if not born.isdigit() or not BOOT.is_file() or BOOT.read_text().strip() != boot:
        return []
    told, found = f"PACELINE_HOME={home.resolve()}".encode(), []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            in_group = int(fields[2]) == pid and int(fields[19]) >= int(born)
            if in_group and told in (stat.parent / "environ").read_bytes().split(b"\0"):
                found.append(int(stat.parent.name))
        except OSError:  # it ended while we looked, or is another user's
            continue
    return found


def _gone(ours: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while ours():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _read(path: Path) -> dict[str, dict[str, str | int]]:
    try:
        stored = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return stored if isinstance(stored, dict) else {}
