"""A long series is thinned: what is new stays whole, what is old in steps, marks for ever."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from monitoring import thinning
from monitoring.series import Entry, Mark, Point, Throughput, append, read_series
from monitoring.thinning import KEPT_SECONDS, STEP_SECONDS, WHOLE_SECONDS, thin, thinned

NOW = 100 * 86_400.0


def point(at: float, pair: str = "p-1") -> Point:
    return Point(at, pair, "head", "d", 4, 100, None, None, None, (), None, None)


def throughput(at: float, requests: int = 5, emitted: float = 40.0) -> Throughput:
    return Throughput(at, "p-1", "head", 2.0, requests, 1, 0.7, emitted)


def test_a_day_stays_as_it_was_written() -> None:
    new: list[Entry] = [point(NOW - age) for age in range(0, int(WHOLE_SECONDS), 7200)]
    assert thinned(new, now=NOW) == sorted(new, key=lambda one: one.at)


def test_a_step_keeps_the_last_point_of_each_pair() -> None:
    begin = (NOW - 3 * WHOLE_SECONDS) // STEP_SECONDS * STEP_SECONDS
    old = [point(begin + n, pair) for n in range(0, 600, 100) for pair in ("p-1", "p-2")]
    kept = thinned(old, now=NOW)
    assert [(one.at - begin, one.pair) for one in kept] == [
        *((200.0, "p-1"), (200.0, "p-2"), (500.0, "p-1"), (500.0, "p-2"))
    ]


def test_what_counters_did_is_added_up() -> None:
    begin = (NOW - 3 * WHOLE_SECONDS) // STEP_SECONDS * STEP_SECONDS
    (kept,) = thinned([throughput(begin, 5, 40.0), throughput(begin + 2, 15, 60.0)], now=NOW)
    assert kept == Throughput(begin + 2, "p-1", "head", 4.0, 20, 2, 0.7, 50.0)


def test_after_a_month_marks_alone_are_left() -> None:
    at = NOW - KEPT_SECONDS - 1
    assert thinned([point(at), throughput(at), Mark(at, "swap", "p-1")], now=NOW) == [
        Mark(at, "swap", "p-1")
    ]


def test_a_file_is_thinned_whole_once_it_is_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "series.jsonl"
    append(path, [point(NOW - 3 * WHOLE_SECONDS + n) for n in range(50)])
    append(path, [point(NOW)])
    assert thin(path, now=NOW) == 0  # it is short
    monkeypatch.setattr(thinning, "SMALL_BYTES", 0)
    assert thin(path, now=NOW) == 49
    assert [one.at for one in read_series(path)][-1] == NOW
    assert thin(tmp_path / "none.jsonl", now=NOW) == 0


def test_a_clock_that_is_far_ahead_throws_nothing_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thinning, "SMALL_BYTES", 0)
    path = tmp_path / "series.jsonl"
    append(path, [point(NOW + n) for n in range(5)])
    assert thin(path, now=NOW + 100 * KEPT_SECONDS) == 0


def test_what_is_appended_meanwhile_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thinning, "SMALL_BYTES", 0)
    path = tmp_path / "series.jsonl"
    append(path, [point(NOW - 3 * WHOLE_SECONDS)])

    def write() -> None:
        for n in range(200):
            append(path, [Mark(NOW + n, "swap", "p-1")])

    writer = threading.Thread(target=write)
    writer.start()
    for n in range(30):
        append(path, [point(NOW - 3 * WHOLE_SECONDS + n / 100)])
        thin(path, now=NOW)
    writer.join()
    assert len([one for one in read_series(path) if isinstance(one, Mark)]) == 200
