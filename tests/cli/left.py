"""What of a home still runs: found by the environment that its processes began with, or by their
arguments.

Prefect's server knows its home by its environment alone. Where there is no /proc, arguments have to
do.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

END_SECONDS = 10.0  # children are told to end when their parent is gone, at their own pace
PROCESSES = Path("/proc")


def left_of(home: Path) -> list[str]:
    """The command lines of the processes of `home`."""
    if not (PROCESSES / "self" / "environ").exists():
        told = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
        return [line for line in told.stdout.splitlines() if str(home) in line]
    ours = {f"PACELINE_HOME={place}".encode() for place in (home, home.resolve())}
    found = []
    for process in PROCESSES.glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes()
            environ = (process / "environ").read_bytes().split(b"\0")
        except OSError:  # it ended while we looked, or is another user's
            continue
        if str(home).encode() in arguments or ours.intersection(environ):
            found.append(arguments.replace(b"\0", b" ").decode(errors="replace"))
    return found


def assert_nothing_is_left_of(home: Path) -> None:
    deadline = time.monotonic() + END_SECONDS
    while left := left_of(home):
        if time.monotonic() > deadline:
            pytest.fail(f"still running: {left}")
        time.sleep(0.2)
