"""What a source shows is taken in once, in its order, when it has been quiet for long enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from registry.arrivals import BEFORE, Arrival, Arrivals

ONE, TWO, THREE = (Arrival(f"/m/{n}", f"s{n}", created=float(n)) for n in (1, 2, 3))


@pytest.fixture
def arrivals(tmp_path: Path) -> Arrivals:
    return Arrivals(tmp_path / "sources" / "docs.json")


def due(arrivals: Arrivals, shown: Sequence[Arrival], clock: float, boot: str = "a") -> list[str]:
    return [
        one.place for one in arrivals.look("o", shown, settle_seconds=10, now=(boot, clock)).due
    ]


def test_of_what_was_there_before_only_the_newest_is_taken_in(arrivals: Arrivals) -> None:
    half = replace(THREE, waits="config.json is not there yet")
    assert arrivals.look("o", [TWO, half, ONE]).due == (TWO,)
    assert arrivals.outcome(ONE) == BEFORE
    assert arrivals.look("o", [TWO, THREE, ONE]).due == (TWO, THREE), "whole now"


def test_all_that_comes_later_is_taken_in_the_oldest_first_and_once(arrivals: Arrivals) -> None:
    assert arrivals.look("o", []).due == ()
    assert arrivals.look("o", [THREE, ONE, TWO]).due == (ONE, TWO, THREE)
    arrivals.note("o", ONE, "release 1")
    assert arrivals.look("o", [THREE, ONE, TWO]).due == (TWO, THREE)
    assert arrivals.look("other", [ONE]).due == (), "handled whoever shows it"


def test_what_was_written_to_is_not_due_until_it_has_been_quiet(arrivals: Arrivals) -> None:
    changed = replace(ONE, signature="s1b")
    assert due(arrivals, [ONE], 100) == []
    assert due(arrivals, [changed], 109) == []
    assert due(arrivals, [changed], 118) == []
    assert due(arrivals, [changed], 119) == ["/m/1"]


@pytest.mark.parametrize(("boot", "clock"), [("b", 5000.0), ("a", 3.0)], ids=["later", "earlier"])
def test_another_start_of_the_machine_counts_anew(
    arrivals: Arrivals, boot: str, clock: float
) -> None:
    assert due(arrivals, [ONE], 100) == []
    assert due(arrivals, [ONE], clock, boot) == []
    assert due(arrivals, [ONE], clock + 10, boot) == ["/m/1"]


def test_a_jump_of_the_wall_clock_hurries_nothing(
    arrivals: Arrivals, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert arrivals.look("o", [ONE], settle_seconds=3600).due == ()
    monkeypatch.setattr("time.time", lambda: 4e9)
    (waiting,) = arrivals.look("o", [ONE], settle_seconds=3600).waiting
    assert waiting == (ONE, "unchanged for less than 3600 s")


def test_what_is_not_whole_waits_with_its_reason(arrivals: Arrivals) -> None:
    half = replace(ONE, waits="x.tmp is being written")
    for _ in range(2):
        look = arrivals.look("o", [half])
        assert (look.due, look.waiting) == ((), ((half, "x.tmp is being written"),))


def test_an_alias_that_goes_back_is_told_once_and_never_due(arrivals: Arrivals) -> None:
    first, second = (replace(one, pointed=True) for one in (ONE, TWO))
    for one, what in ((first, "release 1"), (second, "release 2")):
        assert arrivals.look("o", [one]).due == (one,)
        arrivals.note("o", one, what)
        assert arrivals.look("o", [one]).back == ()
    look = arrivals.look("o", [first])
    assert (look.due, look.back) == ((), ((first, "release 1"),))
    assert arrivals.look("o", [first]).back == look.back, "until it is told"
    arrivals.pointed_at("o", first)
    assert arrivals.look("o", [first]).back == ()
    assert arrivals.look("o", [second]).back == ((second, "release 2"),)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"handled": 3}'])
def test_a_memory_that_is_broken_is_an_empty_one(arrivals: Arrivals, text: str) -> None:
    arrivals.path.parent.mkdir()
    arrivals.path.write_text(text)
    assert arrivals.look("o", [ONE]).due == (ONE,)
