"""How much the loop may do by itself, from what it did."""

from __future__ import annotations

from typing import Any

from configuration.limits import Limits
from flows.restraint import DAY_SECONDS, may_retrain, may_turn

LIMITS = Limits(cooldown_minutes=60.0, retrains_a_day=3, turns_a_day=2)


def answered(at: float, *kinds: str, cause: str = "drift") -> dict[str, Any]:
    return {"what": "answered", "at": at, "kinds": list(kinds), "cause": cause}


def test_a_cause_that_was_answered_with_a_retrain_cools_down_and_another_does_not() -> None:
    past = [answered(0.0, "retrain")]
    assert "cooldown_minutes" in may_retrain(past, LIMITS, cause="drift", now=3599.0)
    assert may_retrain(past, LIMITS, cause="drift", now=3600.0) == ""
    assert may_retrain(past, LIMITS, cause="release_mismatch", now=1.0) == ""
    assert may_retrain([answered(0.0, "note")], LIMITS, cause="drift", now=1.0) == ""


def test_so_many_retrains_are_begun_for_alarms_in_any_24_hours() -> None:
    past = [answered(at, "retrain") for at in (0.0, 4000.0, 8000.0)]
    assert "retrains_a_day" in may_retrain(past, LIMITS, cause="drift", now=DAY_SECONDS - 1)
    assert may_retrain(past, LIMITS, cause="drift", now=DAY_SECONDS) == ""


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
    assert may_retrain(past, LIMITS, cause="drift", now=0.0)
    assert may_turn(past, LIMITS, now=0.0)
