"""The script of `make gpu-check`, on toy sizes and the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def gpu_check(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "examples.gpu_check", "--small", "--device", "cpu", *arguments]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=540, check=False)


@pytest.mark.slow
def test_every_step_of_the_gpu_check_holds_on_toy_sizes() -> None:
    run = gpu_check()
    assert run.returncode == 0, run.stdout + run.stderr
    told = json.loads(run.stdout.splitlines()[-1])
    assert told["failed"] == []
    assert {"tests", "make", "distil", "serve", "bench"} <= set(told)


@pytest.mark.slow
def test_a_gpu_check_that_takes_too_long_ends_in_the_middle_of_a_step() -> None:
    run = gpu_check("--seconds", "3")
    assert run.returncode == 1
    assert "not done within 3 seconds" in run.stderr
