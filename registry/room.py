"""Whether a model folder fits a machine: its bytes by its headers, and what Linux says is free.

Loads without torch, so it knows the host's memory alone; a GPU's is asked where torch is. Weights
are compared as they are stored, without what requests take: what cannot fit, not what surely does.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from registry.folders import weights_of

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
CGROUP_FILES = ("memory.max", "memory.current", "memory.stat")


def bytes_of(folder: Path) -> int:
    """The bytes of a model folder's weights, as they are stored. Raises FolderError."""
    return sum(tensor.size_bytes for tensor in weights_of(folder).values())


def misfit(folder: Path, room: int | None, *, have: str = "are free") -> str:
    """Why the model cannot fit into `room` bytes; "" where it can, or nobody can tell."""
    needed = bytes_of(folder)
    if room is None or needed <= room:
        return ""
    return f"its weights take {gigabytes(needed)}, and {gigabytes(room)} {have}"


def gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"


def free_host_bytes() -> int | None:
    """What memory is free on this machine now; None where it does not tell."""
    return host_free_bytes(_text(MEMINFO), {name: _text(CGROUP / name) for name in CGROUP_FILES})


def host_bytes() -> int | None:
    """All memory that this machine, or its container, has; None where it does not tell."""
    words = next((line.split() for line in _text(MEMINFO).splitlines() if "MemTotal" in line), [])
    total = int(words[1]) * 1024 if len(words) > 1 and words[1].isdigit() else None
    limit = _text(CGROUP / "memory.max").strip()
    known = [one for one in (total, int(limit) if limit.isdigit() else None) if one is not None]
    return min(known, default=None)


def host_free_bytes(meminfo: str, cgroup: Mapping[str, str]) -> int | None:
    """Free memory by Linux's own words: the machine's, or what a container's limit leaves of it."""
    told = {line.split(":")[0]: line.split() for line in meminfo.splitlines() if ":" in line}
    fields = told.get("MemAvailable", [])
    free = int(fields[1]) * 1024 if len(fields) > 1 and fields[1].isdigit() else None
    limit, used = cgroup.get("memory.max", "").strip(), cgroup.get("memory.current", "").strip()
    if not (limit.isdigit() and used.isdigit()):  # "max": no limit
        return free
    stat = dict(
        line.split() for line in cgroup.get("memory.stat", "").splitlines() if " " in line.strip()
    )
    # Cached file pages are counted as used, and given up when memory is asked for.
    left = int(limit) - int(used) + int(stat.get("inactive_file", 0))
    return left if free is None else min(free, left)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
