"""Programs are kept running, each by itself; the clock is the test's own."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.programs import Program
from cli.upkeep import (
    FAILING_DEATHS,
    HEALTHY_SECONDS,
    LONGEST_WAIT_SECONDS,
    READY_SECONDS,
    STALE_SECONDS,
    Upkeep,
    read_state,
    wait_seconds,
    write_state,
)

STAYS = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
DIES = [sys.executable, "-S", "-c", "print('no such database', flush=True); raise SystemExit(3)"]


class Scene:
    """Programs, their clock, and whether they say that they are ready."""

    def __init__(self, folder: Path, *programs: Program) -> None:
        self.now, self.ready = 0.0, True
        self.upkeep = Upkeep(
            programs,
            folder=folder,
            environ=os.environ,
            ready=lambda url: self.ready,
            clock=lambda: self.now,
        )

    def turn(self, *, seconds: float = 0.0) -> None:
        self.now += seconds
        self.upkeep.turn()

    def state(self, name: str) -> str:
        return self.upkeep.kept[name].state

    def pid(self, name: str) -> int:
        found = self.upkeep.kept[name].process
        assert found is not None
        return found.pid

    def died(self, name: str) -> None:
        """Wait for the process, and have its death seen."""
        found = self.upkeep.kept[name].process
        assert found is not None
        found.wait(60)
        self.upkeep.turn()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Callable[..., Scene]]:
    made: list[Scene] = []

    def make(*programs: Program) -> Scene:
        made.append(Scene(tmp_path, *programs))
        return made[-1]

    yield make
    for one in made:
        one.upkeep.end()


def test_waits_grow_up_to_a_minute() -> None:
    assert [wait_seconds(n) for n in (1, 2, 3, 4)] == [1, 2, 4, 8]
    assert wait_seconds(10_000) == LONGEST_WAIT_SECONDS


def test_what_dies_is_started_again_after_a_growing_wait_and_the_others_go_on(
    scene: Callable[..., Scene],
) -> None:
    there = scene(Program("bad", DIES), Program("good", STAYS, "http://h", "/health"))
    there.turn()
    there.turn()
    assert there.state("good") == "up"
    good = there.pid("good")
    for failures in range(1, FAILING_DEATHS + 1):
        there.died("bad")
        kept = there.upkeep.kept["bad"]
        assert kept.state == ("failing" if failures == FAILING_DEATHS else "waits")
        assert kept.why == "ended with code 3: no such database"
        there.turn(seconds=wait_seconds(failures) - 0.1)
        assert kept.process is None, "not before its time"
        there.turn(seconds=0.1)
        assert kept.restarts == failures
    assert there.pid("good") == good
    assert there.upkeep.told()[0]["state"] == "failing"


def test_after_a_time_of_health_the_waits_begin_anew(scene: Callable[..., Scene]) -> None:
    there = scene(Program("server", STAYS, "http://h", "/health"))
    for failures in (1, 2):
        there.turn()
        there.turn()
        os.kill(there.pid("server"), signal.SIGKILL)
        there.died("server")
        assert there.upkeep.kept["server"].failures == failures
        there.turn(seconds=wait_seconds(failures))
    there.turn(seconds=1.0)
    there.turn(seconds=HEALTHY_SECONDS)
    assert there.upkeep.kept["server"].failures == 0


def test_one_that_needs_another_waits_until_that_one_is_up_and_says_so(
    scene: Callable[..., Scene],
) -> None:
    there = scene(
        Program("mlflow", STAYS, "http://h", "/health"), Program("worker", STAYS, needs=("mlflow",))
    )
    there.ready = False
    there.turn()
    there.turn()
    assert (there.state("mlflow"), there.state("worker")) == ("starts", "waits")
    assert there.upkeep.kept["worker"].why == "for mlflow"
    there.ready = True
    there.turn()
    there.turn()
    assert there.state("worker") in ("starts", "up")
    worker = there.pid("worker")
    os.kill(there.pid("mlflow"), signal.SIGKILL)
    there.died("mlflow")
    there.turn()
    assert there.pid("worker") == worker, "what it needs is where it was, and it waits for it"


def test_one_that_never_says_that_it_is_ready_is_ended_and_counts_as_dead(
    scene: Callable[..., Scene],
) -> None:
    there = scene(Program("server", STAYS, "http://h", "/health"))
    there.ready = False
    there.turn()
    there.turn(seconds=READY_SECONDS + 1)
    kept = there.upkeep.kept["server"]
    assert (kept.state, kept.failures, kept.process) == ("waits", 1, None)
    assert "was not ready after" in kept.why


def test_they_end_last_first_and_those_that_do_not_listen_are_killed_by_a_second_signal(
    tmp_path: Path, scene: Callable[..., Scene]
) -> None:
    order = tmp_path / "order"

    def tells(name: str) -> list[str]:
        code = (
            "import signal, sys, time\n"
            f"def end(*_): open({str(order)!r}, 'a').write({name + ' '!r}); sys.exit()\n"
            f"signal.signal(signal.SIGTERM, end); open({str(tmp_path / name)!r}, 'w')\n"
            "time.sleep(600)"
        )
        return [sys.executable, "-S", "-c", code]

    there = scene(Program("first", tells("first")), Program("second", tells("second")))
    there.turn()
    while not all((tmp_path / name).exists() for name in ("first", "second")):
        time.sleep(0.01)
    there.upkeep.end()
    assert order.read_text() == "second first "
    deaf = [sys.executable, "-S", "-c", "import signal, time; signal.signal(15, signal.SIG_IGN)\n"]
    deaf[-1] += "while True: time.sleep(1)"
    other = scene(Program("deaf", deaf, stop_seconds=600.0))
    other.turn()
    process = other.upkeep.kept["deaf"].process
    assert process is not None
    other.upkeep.kill()
    other.upkeep.end()
    assert process.poll() == -signal.SIGKILL


def test_others_see_how_they_do_for_as_long_as_somebody_says_so(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    assert read_state(path, now=0.0) == []
    write_state(path, [{"name": "mlflow", "state": "up"}])
    now = time.time()
    assert read_state(path, now=now) == [{"name": "mlflow", "state": "up"}]
    assert read_state(path, now=now + STALE_SECONDS + 1) == []
    path.write_text("torn")
    assert read_state(path, now=now) == []
