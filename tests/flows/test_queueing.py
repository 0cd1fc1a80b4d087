"""One heavy piece of work at a time, in an order that starves nobody."""

from __future__ import annotations

from typing import Any

from flows.attempts import Word
from flows.queueing import in_turn


def work(key: str, rank: str = "release", since: float = 0.0) -> dict[str, Any]:
    return {"key": key, "rank": rank, "since": since}


def all_due(*wanted: dict[str, Any]) -> dict[str, Word]:
    return {one["key"]: "due" for one in wanted}


def test_what_waited_longest_comes_first_releases_before_alarms_before_the_calendar() -> None:
    wanted = [
        work("refresh", "refresh", 1.0),
        work("alarm", "alarm", 2.0),
        work("late", since=9.0),
        work("early", since=3.0),
    ]
    words, order = all_due(*wanted), []
    while (turn := in_turn(wanted, words, [])[0]) is not None:
        order.append(turn)
        words[turn] = "done"
    assert order == ["early", "late", "alarm", "refresh"]


def test_while_something_computes_nothing_begins_and_each_is_told_behind_what() -> None:
    wanted = [work("a"), work("b")]
    turn, waiting = in_turn(wanted, {"a": "due", "b": "alive"}, ["brave-otter"])
    assert turn is None
    assert waiting == {"a": "waits its turn: brave-otter computes"}


def test_what_waits_out_an_outage_or_was_given_up_holds_nobody_up() -> None:
    wanted = [work("down"), work("broken"), work("fine", since=5.0)]
    assert in_turn(wanted, {"down": "waits", "broken": "given up", "fine": "due"}, [])[0] == "fine"
