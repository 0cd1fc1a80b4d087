"""Looks become increases: resets, missed looks, replicas, clocks, and counters that lie."""

from __future__ import annotations

import json

import pytest

from monitoring.adapters import Read, Reading
from monitoring.facts import SourceFault
from monitoring.increases import Increase, Increases
from speculation.records import Counts

ONE = Counts(10, 1, 40, 28, (10, 7, 5, 4), (7, 5, 4, 1))
KEY = ("p-1", "head")


def figures(counts: Counts, times: int = 1, **requests: int) -> dict[str, float]:
    found = {
        "rounds": counts.rounds,
        "plain_forwards": counts.plain_forwards,
        "drafted": counts.drafted,
        "emitted": counts.emitted,
        **{f"judged.{j}": n for j, n in enumerate(counts.judged_per_position)},
        **{f"accepted.{j}": n for j, n in enumerate(counts.accepted_per_position)},
    }
    ended = {f"requests.{name}": number for name, number in requests.items()}
    return {name: float(n * times) for name, n in found.items()} | {
        name: float(n) for name, n in ended.items()
    }


def look(*readings: Reading, started: float | None = None) -> Read:
    return Read(readings, started=started)


def reading(times: int, *, pair: str = "p-1", part: str = "", **requests: int) -> Reading:
    return Reading(pair, "head", part, "builtin 1", figures(ONE, times, **requests))


def moved(found: tuple[list[Increase], list[SourceFault]]) -> dict[tuple[str, str], Counts]:
    increases, faults = found
    assert faults == []
    return {(one.pair, one.slice): one.counts for one in increases}


def kinds(found: tuple[list[Increase], list[SourceFault]]) -> list[str]:
    increases, faults = found
    assert increases == []
    return [fault.kind for fault in faults]


def test_what_happened_between_two_looks_is_their_difference() -> None:
    increases = Increases()
    assert increases.update("a", look(reading(1)), at=1.0) == ([], [])
    found, _ = increases.update("a", look(reading(2, stop=1)), at=3.0)
    assert found == [
        Increase("a", 3.0, 2.0, "p-1", "head", "", "builtin 1", ONE, {"stop": 1}, None)
    ]
    assert increases.update("a", look(reading(2, stop=1)), at=4.0) == ([], [])


def test_a_missed_look_loses_nothing() -> None:
    increases = Increases()
    increases.update("a", look(reading(1)), at=1.0)
    found, _ = increases.update("a", look(reading(3)), at=5.0)
    assert (found[0].counts, found[0].seconds) == (ONE + ONE, 4.0)


def test_a_counter_that_fell_is_a_restart_where_nobody_says_when_it_began() -> None:
    increases = Increases()
    increases.update("a", look(reading(5, stop=5, error=1)), at=1.0)
    found = increases.update("a", look(reading(1, stop=1, error=2)), at=2.0)
    assert moved(found) == {("p-1", ""): ONE}
    assert found[0][0].requests == {"stop": 1, "error": 2}  # no difference of any would be right


def test_a_restart_that_has_passed_the_old_value_is_seen_by_its_start() -> None:
    increases = Increases()
    increases.update("a", look(reading(1), started=100.0), at=1.0)
    found = increases.update("a", look(reading(3), started=200.0), at=2.0)
    assert moved(found) == {("p-1", ""): ONE + ONE + ONE}


def test_a_start_that_is_told_for_the_first_time_is_no_restart() -> None:
    increases = Increases()
    increases.update("a", look(reading(1)), at=1.0)
    assert moved(increases.update("a", look(reading(2), started=9.0), at=2.0)) == {("p-1", ""): ONE}


def test_a_counter_that_fell_in_the_same_process_is_a_lie() -> None:
    increases = Increases()
    increases.update("a", look(reading(5), started=100.0), at=1.0)
    assert kinds(increases.update("a", look(reading(1), started=100.0), at=2.0)) == [
        "source_faulty"
    ]
    found = increases.update("a", look(reading(2), started=100.0), at=3.0)
    assert moved(found) == {("p-1", ""): ONE}  # what it showed last is the new nothing


def test_several_replicas_behind_one_address_are_named() -> None:
    increases = Increases()
    increases.update("a", look(reading(1), started=100.0), at=1.0)
    increases.update("a", look(reading(1), started=200.0), at=2.0)
    found = increases.update("a", look(reading(2), started=100.0), at=3.0)
    assert kinds(found) == ["source_faulty"]
    assert "several replicas" in found[1][0].what


@pytest.mark.parametrize(
    "change",
    [
        {"accepted.0": 100.0},
        {"judged.0": 500.0},
        {"rounds": 500.0},
    ],
    ids=["accepted", "judged", "rounds"],
)
def test_more_accepted_than_judged_or_drafted_is_a_lie(change: dict[str, float]) -> None:
    increases = Increases()
    increases.update("a", look(reading(1)), at=1.0)
    lying = Reading("p-1", "head", "", "builtin 1", {**figures(ONE, 2), **change})
    assert kinds(increases.update("a", look(lying), at=2.0)) == ["source_faulty"]


def test_a_lie_about_one_pair_does_not_hide_another() -> None:
    increases = Increases()
    increases.update("a", look(reading(1), reading(1, pair="p-2")), at=1.0)
    lying = Reading("p-1", "head", "", "builtin 1", {**figures(ONE, 2), "accepted.0": 99.0})
    found, faults = increases.update("a", look(lying, reading(2, pair="p-2")), at=2.0)
    assert [one.pair for one in found] == ["p-2"]
    assert [fault.pair for fault in faults] == ["p-1"]


def test_a_clock_that_goes_back_is_named_and_counted_through() -> None:
    increases = Increases()
    increases.update("a", look(reading(1)), at=100.0)
    found, faults = increases.update("a", look(reading(2)), at=50.0, seconds=2.0)
    assert [fault.kind for fault in faults] == ["clock_back"]
    assert [(one.counts, one.seconds) for one in found] == [(ONE, 2.0)]


def test_replicas_pairs_and_slices_are_apart() -> None:
    increases = Increases()
    for replica in ("a", "b"):
        increases.update(replica, look(reading(1), reading(1, part="adapter=x")), at=1.0)
    found = increases.update("b", look(reading(2), reading(4, part="adapter=x")), at=2.0)
    assert moved(found) == {("p-1", ""): ONE, ("p-1", "adapter=x"): ONE + ONE + ONE}
    found = increases.update("a", look(reading(1), reading(1, pair="p-2")), at=2.0)
    assert moved(found) == {("p-2", ""): ONE}  # during a swap; the old pair may be gone


def test_vllms_increase_is_derived() -> None:
    def counted(times: int) -> Read:
        counts = Counts(100, 0, 300, 285, (), (80, 60, 45))
        return look(Reading("p-1", "eagle", "", "vllm", figures(counts, times), judged_known=False))

    increases = Increases()
    increases.update("a", counted(1), at=1.0)
    ((one,), _) = increases.update("a", counted(2), at=2.0)
    assert one.counts.judged_per_position == (100, 80, 60)
    assert one.derived is not None
    assert one.derived.exact


def test_stored_and_gone_on_from_it_gives_the_same_increases() -> None:
    through, stored = Increases(), Increases()
    for at in range(1, 20):
        started = 100.0 if at < 10 else 200.0
        read = look(reading(at % 10), reading(at % 10, part="adapter=x"), started=started)
        stored = Increases.from_json(json.loads(json.dumps(stored.to_json())))
        assert through.update("a", read, at=float(at)) == stored.update("a", read, at=float(at))
    assert through == stored


def test_a_replica_that_is_gone_for_a_day_is_forgotten() -> None:
    increases = Increases()
    increases.update("a", look(reading(1)), at=1.0)
    increases.update("b", look(reading(1)), at=100_000.0)
    assert set(increases.replicas) == {"b"}


def test_what_a_cut_page_left_out_is_no_increase_when_it_is_told_again() -> None:
    increases = Increases()
    both = look(reading(5), reading(7, pair="p-2"), started=3.0)
    increases.update("a", both, at=1.0)
    part = Reading("p-1", "head", "", "builtin 1", {"rounds": 50.0, "drafted": 200.0})
    assert increases.update("a", look(part, started=3.0), at=2.0) == ([], [])
    found = increases.update("a", look(reading(6), reading(7, pair="p-2"), started=3.0), at=3.0)
    assert moved(found) == {("p-1", ""): ONE}


def test_a_version_that_is_told_later_is_no_increase() -> None:
    increases = Increases()
    increases.update("a", look(reading(5)), at=1.0)
    told = Reading("p-1", "head", "", "builtin 2", figures(ONE, 6))
    assert moved(increases.update("a", look(told), at=2.0)) == {("p-1", ""): ONE}


def test_a_restarted_server_that_served_nothing_yet_did_nothing() -> None:
    increases = Increases()
    increases.update("a", look(reading(1)), at=1.0)
    assert increases.update("a", look(), at=2.0) == ([], [])
    assert moved(increases.update("a", look(reading(1)), at=3.0)) == {("p-1", ""): ONE}
