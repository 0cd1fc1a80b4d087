"""What processes use is read from /proc: children, and those that ended, are in it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.bench_loop import lines_of
from cli.used import cpu_seconds, family, memory_bytes

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")


def test_children_and_their_children_are_family_and_ended_ones_cost_what_they_cost(
    tmp_path: Path,
) -> None:
    code = (
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, '-S', '-c', 'sum(range(10**6))'])\n"
        "child = subprocess.Popen([sys.executable, '-S', '-c', 'input()'], stdin=subprocess.PIPE)\n"
        "print(child.pid, flush=True); input()"
    )
    argv = [sys.executable, "-S", "-c", code]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert set(family([parent.pid])) == {parent.pid, child}
        assert family([parent.pid, 2**30])[0] == parent.pid
        assert cpu_seconds([parent.pid]) > 0
        assert memory_bytes([parent.pid]) > memory_bytes([child]) > 2**20
        parent.communicate(b"\n")
    assert family([parent.pid]) == []


def test_cpu_seconds_count_what_this_process_burns() -> None:
    before, ends = cpu_seconds([os.getpid()]), time.process_time() + 0.1
    while time.process_time() < ends:
        pass
    assert cpu_seconds([os.getpid()]) >= before + 0.05


def test_the_figures_are_a_line_each() -> None:
    told = {
        "release": {"seconds": 61.0, "between": 7.0, "steps": {"look": 4.0, "distil": 50.0}},
        "alarm": {"event": 4.2, "polling": 33.0},
        "idle": {"seconds": 600.0, "cpu_seconds": 41.5, "memory_bytes": 8e8},
    }
    lines = "\n".join(lines_of(told))
    for figure in ("4.0", "50.0", "7.0", "61.0", "4.2", "33.0", "41.5", "800", "10.0 idle minutes"):
        assert figure in lines
