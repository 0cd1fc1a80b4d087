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
    release: str,
    now: float,
) -> str:
    """Why no retrain of that release may be started for an alarm of that cause; empty where one
    may."""
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
    return needs_person(past, limits, release=release) or may_compute(past, limits, now=now)


def may_refresh(past: Sequence[Mapping[str, Any]], limits: Limits, *, now: float) -> str:
    """Why the clock may want no retrain now; empty where it may. Those for alarms count as well."""
    wanted = [e for e in past if e["what"] == "wanted" and _age(e, now) < DAY_SECONDS]
    if len(wanted) < limits.retrains_a_day:
        return ""
    many = f"{len(wanted)} retrains besides those for releases"
    return f"{many} were wanted within a day (retrains_a_day)"


def may_compute(past: Sequence[Mapping[str, Any]], limits: Limits, *, now: float) -> str:
    """Why no retrain at all may begin now: those of a day took all that they may. Empty where one
    may; what is under way is not ended."""
    today = [e for e in past if e["what"] == "ended" and _age(e, now) < DAY_SECONDS]
    minutes = sum(float(entry["seconds"]) for entry in today) / 60
    if minutes < limits.compute_minutes_a_day:
        return ""
    return (
        f"retrains took {minutes:.0f} minutes within a day, and may take "
        f"{limits.compute_minutes_a_day:g} (compute_minutes_a_day)"
    )


def refused(past: Sequence[Mapping[str, Any]], release: str) -> int:
    """How many candidates for a release the gate refused in a row."""
    failed = set[int]()  # by version: a retrain that is asked again tells the same again
    for entry in past:
        if entry["what"] == "resumed":
            failed = set()
        elif entry["what"] == "ended" and entry["release"] == release:
            if entry["promoted"]:
                failed = set()
            elif entry["phase"] == "FAIL":
                failed.add(entry["version"])
    return len(failed)


def needs_person(past: Sequence[Mapping[str, Any]], limits: Limits, *, release: str) -> str:
    """Why a person is to look before another candidate is made for a release: the last ones failed,
    one after the other. Empty where none has to. A person who looked says so: "resumed"."""
    failed = refused(past, release)
    if failed < limits.failed_candidates:
        return ""
    return (
        f"{failed} candidates in a row failed for this release (failed_candidates): look at "
        "their reports, then `paceline resume`"
    )


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
