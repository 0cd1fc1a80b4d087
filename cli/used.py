"""What a tree of processes uses: CPU seconds, and memory with shared pages counted once. Linux."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")


def family(roots: Iterable[int], proc: Path = PROC) -> list[int]:
    """The processes, their children, theirs, and so on; those that are there."""
    parents: dict[int, list[int]] = {}
    for stat in proc.glob("[0-9]*/stat"):
        with suppress(OSError, IndexError, ValueError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found = []
    left = [pid for pid in roots if (proc / str(pid)).exists()]
    while left:
        pid = left.pop()
        found.append(pid)
        left += parents.get(pid, [])
    return found


def cpu_seconds(roots: Iterable[int], proc: Path = PROC) -> float:
    """All that they and their children used so far, those that ended and were waited for too."""
    return sum(_ticks(family(roots, proc), proc)) / os.sysconf("SC_CLK_TCK")


def memory_bytes(roots: Iterable[int], proc: Path = PROC) -> int:
    """What they hold now, a page that several share by its shares."""
    kilobytes = 0
    for pid in family(roots, proc):
        with suppress(OSError, ValueError):
            for line in (proc / str(pid) / "smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    kilobytes += int(line.split()[1])
    return kilobytes * 1024


def _ticks(pids: Iterable[int], proc: Path) -> Iterator[int]:
    for pid in pids:
        with suppress(OSError, IndexError, ValueError):
            fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
            yield sum(int(field) for field in fields[11:15])  # own, and of children waited for
