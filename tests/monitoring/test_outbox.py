"""The outbox: once is once, and a kill at any moment leaves whole alarms."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from monitoring.outbox import Outbox, write_whole
from speculation.records import Alarm

ROOT = Path(__file__).parents[2]


def alarm(number: int = 1, since: float = 100.0) -> Alarm:
    return Alarm(
        f"a-{number:04d}", "p-1", "d" * 64, "drift", "it fell", since, 120, {"acceptance": 0.5}
    )


def test_the_same_alarm_twice_is_once(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    assert outbox.put(alarm())
    assert not outbox.put(alarm())
    assert not Outbox(tmp_path).put(alarm())
    assert outbox.pending() == [alarm()]


def test_a_delivered_alarm_stays_delivered_when_raised_again(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.put(alarm())
    outbox.delivered(alarm().id)
    outbox.delivered(alarm().id)
    assert not outbox.put(alarm())
    assert outbox.pending() == []
    assert outbox.alarms() == [alarm()]


def test_pending_alarms_come_oldest_first(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    for number, since in ((1, 300.0), (2, 100.0), (3, 200.0)):
        outbox.put(alarm(number, since))
    assert [one.since for one in outbox.pending()] == [100.0, 200.0, 300.0]


@pytest.mark.parametrize("bad", ["", "../a", "a/b", ".hidden", "a" * 101, "a\nb", "a\n"])
def test_an_id_that_is_no_file_name_is_refused(tmp_path: Path, bad: str) -> None:
    outbox = Outbox(tmp_path / "outbox")
    with pytest.raises(ValueError, match="wanted up to 100 letters"):
        outbox.put(Alarm(bad, "p", "d", "drift", "s", 0.0, 0))
    assert [path.name for path in tmp_path.rglob("*")] == ["outbox"]


def test_marking_what_was_never_put_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="mark only what `pending` gave"):
        Outbox(tmp_path).delivered("a-0001")


def test_a_failed_write_leaves_the_old_text_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.json"
    write_whole(path, "old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("monitoring.outbox.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_writer_left_half_written_is_removed_later(tmp_path: Path) -> None:
    left, recent = tmp_path / ".a-1.json.x.part", tmp_path / ".a-2.json.x.part"
    for path in (left, recent):
        path.write_text("{")
    os.utime(left, (0, 0))
    assert Outbox(tmp_path).pending() == []
    assert list(tmp_path.iterdir()) == [recent]  # its writer may be alive


PUTTING = """
import sys
from pathlib import Path
from monitoring.outbox import Outbox
from speculation.records import Alarm
outbox = Outbox(Path(sys.argv[1]))
for number in range(100_000):
    one = Alarm(f"a-{number:06d}", "p-1", "d" * 64, "drift", "it fell " * 500, float(number), 1)
    outbox.put(one)
    outbox.put(one)
    if number % 3 == 0:
        outbox.delivered(one.id)
    print(number, flush=True)
"""


@pytest.mark.parametrize("seed", range(3))
def test_after_a_kill_every_alarm_is_whole_and_none_that_was_put_is_lost(
    tmp_path: Path, seed: int
) -> None:
    log = tmp_path / "log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", PUTTING, str(tmp_path / "outbox")], cwd=ROOT, stdout=out
        )
        while not log.stat().st_size:
            time.sleep(0.01)
            assert process.poll() is None
        time.sleep(random.Random(seed).uniform(0.0, 0.3))
        process.kill()
        process.wait()
    done = [int(line) for line in log.read_text().splitlines()[:-1]]  # the last may be cut
    outbox = Outbox(tmp_path / "outbox")
    numbers = [int(one.since) for one in outbox.alarms()]
    assert numbers == list(range(len(numbers)))
    assert len(done) <= len(numbers) <= len(done) + 2
    pending = {int(one.since) for one in outbox.pending()}
    assert {number for number in done if number % 3} <= pending
    assert not {number for number in done if number % 3 == 0} & pending
    assert outbox.put(alarm(9999))  # and it can be gone on with
