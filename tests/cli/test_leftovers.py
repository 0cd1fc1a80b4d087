"""Only processes that are provably ours are ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
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


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux")
@pytest.mark.parametrize("ours", [True, False])
def test_workers_of_a_child_that_was_killed_are_ended_and_no_one_elses(
    tmp_path: Path, ours: bool
) -> None:
    home = tmp_path if ours else tmp_path / "elsewhere"
    code = (
        "import subprocess, sys, time; "
        "print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).pid, "
        "flush=True); time.sleep(60)"
    )
    noted = tmp_path / "run" / "children.json"
    noted.parent.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        process_group=0,
        env={**os.environ, "PACELINE_HOME": str(home)},
    ) as child:
        record(noted, "mlflow", child.pid)
        assert child.stdout is not None
        worker = int(child.stdout.readline())
        child.kill()
    try:
        end_leftovers(noted)
        ends = time.monotonic() + 2
        while identity(worker) is not None and time.monotonic() < ends:
            time.sleep(0.02)
        assert (identity(worker) is None) == ours
    finally:
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)


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
