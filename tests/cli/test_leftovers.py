"""Only processes that are provably ours are ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.leftovers import end_leftovers, identity, record

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); "
    "time.sleep(60)",
]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(SLEEPER) as child:
        yield child
        child.kill()


def test_a_recorded_child_that_still_runs_is_ended(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    record(tmp_path / "children.json", "server", sleeper.pid)
    assert end_leftovers(tmp_path / "children.json") == ["server"]
    assert sleeper.wait(5) != 0
    assert not (tmp_path / "children.json").exists()


def test_another_process_with_the_same_id_is_left_alone(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    known = {"server": {"pid": sleeper.pid, "identity": "another boot 123 another command"}}
    (tmp_path / "children.json").write_text(json.dumps(known))
    assert end_leftovers(tmp_path / "children.json") == []
    assert sleeper.poll() is None


def test_a_child_that_ignores_the_polite_signal_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(STUBBORN, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        record(tmp_path / "children.json", "server", child.pid)
        assert end_leftovers(tmp_path / "children.json", grace_seconds=0.3) == ["server"]
        assert child.wait(5) == -9


def test_nothing_recorded_is_nothing_to_end(tmp_path: Path) -> None:
    assert end_leftovers(tmp_path / "children.json") == []
    (tmp_path / "children.json").write_text("{half")
    assert end_leftovers(tmp_path / "children.json") == []


def test_a_process_is_told_from_its_like_and_from_one_that_is_gone() -> None:
    mine = identity(os.getpid())
    assert mine is not None
    assert mine == identity(os.getpid())
    with subprocess.Popen(SLEEPER) as child:
        assert identity(child.pid) != mine
        child.kill()
        child.wait()
        assert identity(child.pid) is None
