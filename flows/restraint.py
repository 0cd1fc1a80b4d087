"""What the loop may still do by itself for an alarm, from what it did: pure functions.

A clock that was put back makes nothing last longer: what lies in the future counts as now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from configuration.limits import Limits

DAY_SECONDS = 24 * 3600.0
TURNS = ("roll_back", "fall_back")


def may_retrain(
    past: Sequence[Mapping[str, Any]],  # the pairing's entries in the ledger
    limits: Limits,
    *,
    cause: str,
    now: float,
) -> str:
    """Why no retrain may be started for an alarm of that cause; empty where one may."""
    begun = [entry for entry in past if entry["what"] == "answered" and "retrain" in entry["kinds"]]
    same = [entry for entry in begun if entry["cause"] == cause]
    cooldown = limits.cooldown_minutes * 60
    if any(_age(entry, now) < cooldown for entry in same):
        return (
            f"a retrain was begun for {cause} within {limits.cooldown_minutes:g} minutes "
            "(cooldown_minutes)"
        )
    today = sum(1 for entry in begun if _age(entry, now) < DAY_SECONDS)
    if today >= limits.retrains_a_day:
        return f"{today} retrains were begun for alarms within a day (retrains_a_day)"
    return ""


def may_turn(past: Sequence[Mapping[str, Any]], limits: Limits, *, now: float) -> str:
    """Why the champion may not be left once more: it looks like a loop. Empty where it may.

    A person who looked closes the breaker: what was answered before "resumed" does not count.
    """
    turns = 0
    for entry in past:
        if entry["what"] == "resumed":
            turns = 0
        elif entry["what"] == "answered" and set(TURNS) & set(entry["kinds"]):
            turns += _age(entry, now) < DAY_SECONDS
    if turns < limits.turns_a_day:
        return ""
    return (
        f"the champion was left {turns} times within a day (turns_a_day): the draft is not the "
        "only thing that is wrong"
    )


def _age(entry: Mapping[str, Any], now: float) -> float:
    return max(0.0, now - float(entry["at"]))
