"""How much the loop may do by itself, from what it did."""

from __future__ import annotations

from typing import Any

from configuration.limits import Limits
from flows.restraint import (
    DAY_SECONDS,
    may_compute,
    may_refresh,
    may_retrain,
    may_turn,
    needs_person,
)

LIMITS = Limits(cooldown_minutes=60.0, retrains_a_day=3, turns_a_day=2, compute_minutes_a_day=10.0)


def answered(at: float, *kinds: str, cause: str = "drift") -> dict[str, Any]:
    return {"what": "answered", "at": at, "kinds": list(kinds), "cause": cause}


def test_a_cause_that_was_answered_with_a_retrain_cools_down_and_another_does_not() -> None:
    past = [answered(0.0, "retrain")]
    assert "cooldown_minutes" in may_retrain(past, LIMITS, cause="drift", release="r", now=3599.0)
    assert may_retrain(past, LIMITS, cause="drift", release="r", now=3600.0) == ""
    assert may_retrain(past, LIMITS, cause="release_mismatch", release="r", now=1.0) == ""
    assert may_retrain([answered(0.0, "note")], LIMITS, cause="drift", release="r", now=1.0) == ""


def test_so_many_retrains_are_begun_for_alarms_in_any_24_hours() -> None:
    past = [answered(at, "retrain") for at in (0.0, 4000.0, 8000.0)]
    assert "retrains_a_day" in may_retrain(
        past, LIMITS, cause="drift", release="r", now=DAY_SECONDS - 1
    )
    assert may_retrain(past, LIMITS, cause="drift", release="r", now=DAY_SECONDS) == ""


def test_the_breaker_opens_when_the_champion_is_left_again_and_again_and_a_person_closes_it() -> (
    None
):
    past = [answered(0.0, "roll_back"), answered(10.0, "steer", "fall_back")]
    assert may_turn(past[:1], LIMITS, now=20.0) == ""
    assert "turns_a_day" in may_turn(past, LIMITS, now=20.0)
    assert may_turn([*past, {"what": "resumed", "at": 15.0}], LIMITS, now=20.0) == ""
    assert may_turn(past, LIMITS, now=DAY_SECONDS) == ""


def test_a_clock_that_was_put_back_counts_the_future_as_now() -> None:
    past = [answered(1e9, "retrain", "roll_back"), answered(1e9, "fall_back")]
    assert may_retrain(past, LIMITS, cause="drift", release="r", now=0.0)
    assert may_turn(past, LIMITS, now=0.0)


def ended(at: float, phase: str, version: int | None, **more: Any) -> dict[str, Any]:
    told = {"what": "ended", "at": at, "phase": phase, "version": version, "release": "r"}
    return {**told, "seconds": 200.0, "promoted": False, **more}


def test_retrains_of_a_day_take_so_many_minutes_and_one_that_broke_down_counts() -> None:
    past = [ended(0.0, "PASS", 1, promoted=True), ended(10.0, "", None), ended(20.0, "PASS", 2)]
    assert may_compute(past[:2], LIMITS, now=30.0) == ""
    assert "took 10 minutes" in (why := may_compute(past, LIMITS, now=30.0))
    assert may_retrain(past, LIMITS, cause="drift", release="other", now=30.0) == why
    assert may_compute(past, LIMITS, now=DAY_SECONDS) == ""
    assert may_compute(past, LIMITS, now=-1e9), "a clock that was put back lets nobody begin"


def test_a_person_is_called_when_so_many_candidates_in_a_row_failed_for_one_release() -> None:
    past = [ended(0.0, "FAIL", 1), ended(1.0, "FAIL", 2), ended(2.0, "FAIL", 3)]
    limits = Limits(failed_candidates=3)
    assert "3 candidates in a row failed" in needs_person(past, limits, release="r")
    assert "failed_candidates" in may_retrain(past, limits, cause="drift", release="r", now=9.0)
    assert needs_person(past, limits, release="another") == ""
    told_again = [*past[:2], ended(3.0, "FAIL", 2), ended(4.0, "INCONCLUSIVE", 4)]
    assert needs_person(told_again, limits, release="r") == ""
    assert needs_person([*past, {"what": "resumed", "at": 3.0}], limits, release="r") == ""
    served = [*past[:2], ended(2.0, "PASS", 3, promoted=True), ended(3.0, "FAIL", 4)]
    assert needs_person(served, limits, release="r") == ""


def test_the_clock_wants_no_more_retrains_a_day_than_there_may_be() -> None:
    past = [{"what": "wanted", "at": at} for at in (0.0, 1.0, 2.0)]
    assert may_refresh(past[:2], LIMITS, now=3.0) == ""
    assert "retrains_a_day" in may_refresh(past, LIMITS, now=3.0)
    assert may_refresh(past, LIMITS, now=DAY_SECONDS) == ""
