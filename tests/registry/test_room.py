"""What a model folder takes, and what a machine says is free."""

from __future__ import annotations

from pathlib import Path

import pytest

from registry.room import bytes_of, free_host_bytes, host_bytes, host_free_bytes, misfit

MEMINFO = "MemTotal: 4000 kB\nMemFree: 100 kB\nMemAvailable: 2000 kB\n"
STAT = "anon 5\ninactive_file 300\n"


@pytest.mark.parametrize(
    ("meminfo", "cgroup", "free"),
    [
        (MEMINFO, {}, 2000 * 1024),
        (MEMINFO, {"memory.max": "max\n", "memory.current": "7\n"}, 2000 * 1024),
        (MEMINFO, {"memory.max": "1000", "memory.current": "900", "memory.stat": STAT}, 400),
        (MEMINFO, {"memory.max": str(2**40), "memory.current": "900"}, 2000 * 1024),
        ("", {"memory.max": "1000", "memory.current": "900"}, 100),
        ("", {}, None),
        ("MemAvailable: many kB\n\n:\n", {"memory.max": "", "memory.stat": "odd"}, None),
    ],
)
def test_free_memory_is_the_machines_or_what_a_containers_limit_leaves(
    meminfo: str, cgroup: dict[str, str], free: int | None
) -> None:
    assert host_free_bytes(meminfo, cgroup) == free


def test_a_model_that_cannot_fit_is_told_by_its_headers(target: Path) -> None:
    needed = bytes_of(target)
    assert needed <= sum(path.stat().st_size for path in target.glob("*.safetensors"))
    assert misfit(target, needed) == misfit(target, None) == ""
    assert "are free" in misfit(target, needed - 1)
    free, held = free_host_bytes(), host_bytes()
    assert free is None or free > 2**20
    assert free is None or held is None or held > free
