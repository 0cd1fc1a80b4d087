"""The outbox: once is once, and a kill at any moment leaves whole alarms."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from monitoring.notices import Notice, Phase
from monitoring.outbox import GIVE_UP_SECONDS, Outbox
from monitoring.whole import write_whole
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

    monkeypatch.setattr("monitoring.whole.os.fsync", full)
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


TORN = (
    b"",
    b"{",
    b'{"id": "a-0002"}',
    b"[]",
    b"17",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"notice": [], "alarm": {}}',
    b'{"notice": {"id": "a-0002", "phase": "sung", "at": 1}, "alarm": {}}',
)


@pytest.mark.parametrize("torn", TORN, ids=range(len(TORN)))
def test_a_file_that_cannot_be_read_stops_no_other_alarm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, torn: bytes
) -> None:
    outbox = Outbox(tmp_path)
    outbox.put(alarm())
    (tmp_path / "a-0002.json").write_bytes(torn)
    (tmp_path / "a-0003.json").mkdir()
    for _ in range(2):
        assert outbox.pending() == outbox.alarms() == [alarm()]
    assert outbox.unreadable == ["a-0002.json", "a-0003.json"]
    assert len(caplog.records) == 2  # each once
    outbox.delivered("a-0001")
    assert outbox.pending() == []


def test_a_file_under_another_s_name_is_not_that_alarm(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.put(alarm())
    (tmp_path / "a-0001.json").rename(tmp_path / "copy.json")
    assert outbox.pending() == []
    assert outbox.unreadable == ["copy.json"]


def over(number: int, at: float) -> Notice:
    return Notice(f"a-{number:04d}.resolved", Phase.RESOLVED, at, alarm(number))


def test_every_channel_delivers_by_itself(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.put(alarm())
    outbox.delivered("a-0001", "webhook")
    assert [one.id for one in outbox.due("respond", now=100.0)] == ["a-0001"]
    assert [one.id for one in outbox.due("event", now=100.0)] == ["a-0001"]
    assert outbox.due("webhook", now=100.0) == []


def test_a_failed_channel_waits_longer_each_time_and_gives_up_after_a_day(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.put(alarm())
    now, waits = 100.0, []
    while outbox.due("webhook", now=now):
        outbox.failed("a-0001", "webhook", "503", now=now)
        until = next((t for t in range(1, 3601) if outbox.due("webhook", now=now + t)), None)
        if until is None:
            break
        waits.append(until)
        now += until
    assert waits[:8] == [30, 60, 120, 240, 480, 960, 1920, 3600]
    assert set(waits[8:]) == {3600}
    assert now <= 100.0 + GIVE_UP_SECONDS
    assert [one.id for one in outbox.due("respond", now=now * 9)] == ["a-0001"]  # it never gives up


def test_what_is_over_is_not_responded_to_and_is_told_once(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    for number in (1, 2):
        outbox.put(alarm(number))
    outbox.delivered("a-0001", "webhook")
    for number in (1, 2):
        outbox.put(over(number, 200.0))
    assert outbox.due("respond", now=200.0) == []
    assert [one.id for one in outbox.due("webhook", now=200.0)] == [
        "a-0001.resolved",
        "a-0002.resolved",
    ]
    assert outbox.open() == []


def test_an_alarm_of_before_there_were_channels_is_read_and_told_once(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"a-000{number}.json").write_text(json.dumps(asdict(alarm(number))))
    (tmp_path / "a-0001.delivered").touch()
    outbox = Outbox(tmp_path)
    assert outbox.alarms() == [alarm(1), alarm(2)]
    for channel in ("respond", "event", "webhook"):
        assert [one.id for one in outbox.due(channel, now=100.0)] == ["a-0002"]


def test_old_news_is_pruned_and_what_nobody_responded_to_stays(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    for number, since in ((1, 100.0), (2, 100.0), (3, 900.0)):
        outbox.put(alarm(number, since))
    for number in (1, 3):
        outbox.delivered(f"a-000{number}")
    outbox.failed("a-0001", "webhook", "gone", now=100.0)
    outbox.responded("a-0001", action="note", done="noted", at=100.0)
    (tmp_path / "a-0001.notes").touch()  # somebody else's
    assert outbox.prune(500.0) == 1
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"a-0001.notes", "a-0002.json", "a-0003.json", "a-0003.delivered"}


def test_what_was_over_before_anybody_responded_is_pruned_as_well(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.put(alarm())
    outbox.put(over(1, 200.0))
    assert outbox.prune(500.0) == 2
    assert list(tmp_path.iterdir()) == []


def test_what_was_done_about_an_alarm_stands_beside_it(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.put(alarm())
    assert outbox.response("a-0001") is None
    outbox.responded("a-0001", action="retrain", done="retrain of support: run-1", at=120.0)
    assert outbox.response("a-0001") == {
        "action": "retrain",
        "done": "retrain of support: run-1",
        "at": 120.0,
    }
    assert outbox.alarms() == [alarm()]


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


def test_what_is_back_after_it_was_over_is_open_and_told(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.put(alarm())
    outbox.put(over(1, 200.0))
    outbox.put(Notice("a-0001.again.1", Phase.AGAIN, 300.0, alarm()))
    assert [one.id for one in outbox.due("event", now=300.0)] == [
        "a-0001.resolved",
        "a-0001.again.1",
    ]
    assert outbox.open() == [alarm()]
