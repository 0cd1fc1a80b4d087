"""The exchange log: what was appended is read back, over rotation, crashes and deletion."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitoring.exchanges import ExchangeLog, delete_exchanges, files, read_exchanges, read_logged
from speculation.records import Counts, Exchange

Opener = Callable[..., ExchangeLog]


@pytest.fixture
def open_log() -> Iterator[Opener]:
    """Opens logs and closes them at the end, as a crash would leave them closed."""
    logs: list[ExchangeLog] = []

    def opened(folder: Path, **settings: Any) -> ExchangeLog:
        logs.append(ExchangeLog(folder, **settings))
        return logs[-1]

    yield opened
    for log in logs:
        log.close()


class Clock:
    def __init__(self, now: float = 1_700_000_000.0, step: float = 1.0) -> None:
        self.now = now
        self.step = step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def exchange(name: str, **changed: object) -> Exchange:
    values: dict[str, object] = {
        "id": name,
        "pair": "p-0123456789abcdef",
        "release": "f" * 64,
        "drafter": "head",
        "draft_len": 4,
        "started": 1_700_000_000.0,
        "prompt_tokens": 11,
        "prompt_tokens_cached": 0,
        "counts": Counts(3, 1, 12, 9, (3, 2, 1, 1), (2, 1, 1, 1)),
        "queue_seconds": 0.0,
        "prefill_seconds": 0.1,
        "decode_seconds": 0.2,
        "outcome": "stop",
    }
    return Exchange(**{**values, **changed})  # type: ignore[arg-type]  # the values are of any field


def test_what_is_appended_is_read_back_in_order(tmp_path: Path, open_log: Opener) -> None:
    log = open_log(tmp_path)
    written = [exchange("a"), exchange("b", prompt_ids=(1, 2), completion_ids=(3,))]
    for one in written:
        log.append(one)
    assert list(read_exchanges(tmp_path)) == written


def test_a_reader_goes_on_from_the_last_line_it_has_seen(tmp_path: Path, open_log: Opener) -> None:
    log = open_log(tmp_path, clock=Clock(step=0.0), rotate_bytes=700)
    for number in range(10):  # all within the same instant of the clock
        log.append(exchange(str(number)))
    seen: list[str] = []
    since = 0.0
    while batch := list(read_logged(tmp_path, since))[:3]:
        seen += [line["id"] for line in batch]
        since = batch[-1]["logged"]
    assert seen == [str(number) for number in range(10)]
    assert len(files(tmp_path)) > 2


def test_a_torn_last_line_loses_that_line_only(tmp_path: Path, open_log: Opener) -> None:
    log = open_log(tmp_path, clock=Clock())
    log.append(exchange("whole"))
    log.append(exchange("torn"))
    (path,) = files(tmp_path)
    path.write_bytes(path.read_bytes()[:-40])
    open_log(tmp_path, clock=Clock(1_700_000_100.0)).append(exchange("after the restart"))
    assert [one.id for one in read_exchanges(tmp_path)] == ["whole", "after the restart"]


@pytest.mark.parametrize("gone", ["moved away", "replaced", "deleted"])
def test_a_log_whose_folder_is_taken_away_goes_on_in_a_new_one(
    tmp_path: Path, open_log: Opener, gone: str
) -> None:
    log = open_log(tmp_path / "log", clock=Clock())
    log.append(exchange("before"))
    if gone == "deleted":
        shutil.rmtree(tmp_path / "log")
    else:
        (tmp_path / "log").rename(tmp_path / "kept")
    if gone == "replaced":
        shutil.copytree(tmp_path / "kept", tmp_path / "log")
    log.append(exchange("after"))
    kept = ["before"] if gone == "replaced" else []
    assert [one.id for one in read_exchanges(tmp_path / "log")] == [*kept, "after"]
    if gone != "deleted":
        assert [one.id for one in read_exchanges(tmp_path / "kept")] == ["before"]


def test_a_clock_that_goes_back_does_not_take_the_cursor_with_it(
    tmp_path: Path, open_log: Opener
) -> None:
    open_log(tmp_path, clock=Clock(2_000_000_000.0)).append(exchange("late"))
    open_log(tmp_path, clock=Clock(1_000_000_000.0)).append(exchange("early"))
    first, second = read_logged(tmp_path)
    assert [first["id"], second["id"]] == ["late", "early"]
    assert second["logged"] > first["logged"]


def test_the_log_stays_within_its_bytes_and_drops_the_oldest(
    tmp_path: Path, open_log: Opener
) -> None:
    log = open_log(tmp_path, rotate_bytes=1000, keep_bytes=5000, clock=Clock())
    for number in range(100):
        log.append(exchange(str(number)))
    assert sum(path.stat().st_size for path in files(tmp_path)) <= 5000 + 1000
    kept = [int(one.id) for one in read_exchanges(tmp_path)]
    assert kept == list(range(kept[0], 100))
    assert len(kept) > 5


def test_old_files_go_when_their_time_is_up(tmp_path: Path, open_log: Opener) -> None:
    log = open_log(tmp_path, rotate_bytes=1, keep_seconds=9, clock=Clock())
    for number in range(20):
        log.append(exchange(str(number)))
    assert [int(one.id) for one in read_exchanges(tmp_path)] == list(range(16, 20))


def test_no_line_is_kept_for_longer_than_its_time_by_a_quiet_server(
    tmp_path: Path, open_log: Opener
) -> None:
    clock = Clock(step=0.0)
    log = open_log(tmp_path, keep_seconds=320, clock=clock)
    log.append(exchange("first"))
    clock.now += 9
    log.append(exchange("same file"))
    clock.now += 2  # a file is closed when its time is a thirty-second over
    log.append(exchange("second"))
    assert len(files(tmp_path)) == 2
    clock.now += 308
    assert log.expire() == 0
    clock.now += 2
    (tmp_path / "1.rest").write_text("left by a crash")
    assert log.expire() == 1
    assert [one.id for one in read_exchanges(tmp_path)] == ["second"]
    clock.now += 320
    assert log.expire() == 1
    assert list(tmp_path.iterdir()) == []
    log.append(exchange("later"))
    assert [one.id for one in read_exchanges(tmp_path)] == ["later"]


def test_a_clock_that_jumps_and_comes_back_costs_no_line(tmp_path: Path, open_log: Opener) -> None:
    clock = Clock(step=0.0)
    log = open_log(tmp_path, keep_seconds=320, clock=clock)
    log.append(exchange("gone too soon"))
    clock.now += 1e6
    assert log.expire() == 1  # the file that is being written
    clock.now -= 1e6
    log.append(exchange("kept"))
    assert [one.id for one in read_exchanges(tmp_path)] == ["kept"]


def test_nobody_else_may_read_the_log(tmp_path: Path, open_log: Opener) -> None:
    folder = tmp_path / "log"
    folder.mkdir(mode=0o755)
    log = open_log(folder, clock=Clock())
    for name in ("a", "b"):
        log.append(exchange(name))
    # What it leaves was written anew.
    log.deletion(before=next(iter(read_logged(folder)))["logged"] + 0.5)()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in files(folder)] == [0o600]


@pytest.mark.parametrize("rotate_bytes", [1, 900, 10**6])
def test_deletion_takes_the_lines_before_and_no_other_whatever_file_they_are_in(
    tmp_path: Path, open_log: Opener, rotate_bytes: int
) -> None:
    log = open_log(tmp_path, rotate_bytes=rotate_bytes, clock=Clock())
    for number in range(8):
        log.append(exchange(str(number)))
    before = list(read_logged(tmp_path))[5]["logged"]
    assert log.deletion(before=before)() == 5
    assert [one.id for one in read_exchanges(tmp_path)] == ["5", "6", "7"]
    log.append(exchange("8"))
    assert [one.id for one in read_exchanges(tmp_path, before)] == ["6", "7", "8"]
    assert delete_exchanges(tmp_path, before=2e9) == 4
    assert list(tmp_path.iterdir()) == []


def test_what_is_logged_while_lines_are_deleted_stays_and_so_do_the_lines_kept(
    tmp_path: Path, open_log: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path, clock=Clock())
    for number in range(4):
        log.append(exchange(str(number)))
    before = list(read_logged(tmp_path))[2]["logged"]
    delete = log.deletion(before=before)
    log.append(exchange("begun"))
    exists = Path.exists

    def meanwhile(path: Path) -> bool:  # asked between the rest's writing and its taking the place
        log.append(exchange("meanwhile"))
        log.expire()
        return exists(path)

    monkeypatch.setattr(Path, "exists", meanwhile)
    assert delete() == 2
    log.append(exchange("after"))
    kept = ["2", "3", "begun", "meanwhile", "after"]
    assert [one.id for one in read_exchanges(tmp_path)] == kept
    assert len(files(tmp_path)) == 2


def test_a_file_whose_time_is_up_while_lines_are_deleted_does_not_come_back(
    tmp_path: Path, open_log: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(step=0.0)
    log = open_log(tmp_path, keep_seconds=320, clock=clock)
    for name in ("first", "second"):
        log.append(exchange(name))
    delete = log.deletion(before=list(read_logged(tmp_path))[1]["logged"])
    exists = Path.exists

    def meanwhile(path: Path) -> bool:
        clock.now += 400
        log.expire()
        return exists(path)

    monkeypatch.setattr(Path, "exists", meanwhile)
    assert delete() == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_an_os_error_and_the_log_recovers(
    tmp_path: Path, open_log: Opener
) -> None:
    folder = tmp_path / "log"
    folder.write_text("in the way")
    log = open_log(folder)
    with pytest.raises(OSError, match="log"):
        log.append(exchange("lost"))
    folder.unlink()
    log.append(exchange("kept"))
    assert [one.id for one in read_exchanges(folder)] == ["kept"]


def test_a_folder_that_is_not_there_holds_no_exchanges(tmp_path: Path) -> None:
    assert list(read_exchanges(tmp_path / "none")) == []


@given(garbage=st.binary(max_size=60).filter(lambda text: b"\n" not in text))
def test_garbage_at_the_end_of_a_file_never_stops_a_reader(
    tmp_path_factory: pytest.TempPathFactory, garbage: bytes
) -> None:
    folder = tmp_path_factory.mktemp("log")
    with closing(ExchangeLog(folder)) as log:
        log.append(exchange("whole"))
    (path,) = files(folder)
    path.write_bytes(path.read_bytes() + garbage)
    assert [one.id for one in read_exchanges(folder)] == ["whole"]


def test_lines_that_are_not_of_a_log_are_passed_over(tmp_path: Path, open_log: Opener) -> None:
    strange = [b"\x00\xff", b'{"logged": "x"}', b'{"logged": true}', b'{"logged": 1}', b"[]", b"7"]
    (tmp_path / f"{1:017d}.jsonl").write_bytes(b"\n".join(strange) + b"\n")
    log = open_log(tmp_path, keep_seconds=1e12)
    log.append(exchange("a"))
    assert list(read_exchanges(tmp_path)) == [exchange("a")]
    assert next(read_logged(tmp_path)) == {"logged": 1}, "as it stands"
