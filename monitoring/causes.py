"""Every cause an alarm may have: how urgent it is, what it advises, what it explains away.

A table and nothing else. What makes a cause hold is in `diagnosis.py`; what is done about it, in
`flows`. docs/monitoring.md has a heading for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ACTIONS = {  # the word an alarm carries, and what it asks for
    "retrain": "promote a better pair if there is one, else retrain on recent traffic",
    "retrain for the release": "load the pair of the release that is served, or retrain for it; "
    "until then let the n-gram draft stand in",
    "roll back": "reload the pair, roll back to the one before, or turn drafting off",
    "rebaseline": "nothing to do: a new baseline is learnt from the next requests",
    "lower K": "lower K or turn drafting off: the draft itself is as good as it was",
    "add replicas": "add replicas or shed load, and leave the draft alone",
    "leave": "do not retrain: the draft is as good as it was on each kind of request",
    "look": "a person may look at it",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """One row."""

    action: str  # a word of ACTIONS
    severity: Literal["page", "ticket", "note"]
    inhibits: tuple[str, ...] = ()  # causes of the same pair that it explains
    by_requests: bool = True  # it takes requests to say that it is over; else time alone does
    outside: bool = False  # somebody else's alert may say so


JUDGED = ("drift", "mix_shift", "no_gain", "capacity", "slow_service")  # what statistics find

CAUSES = {
    "release_mismatch": Cause(
        "retrain for the release",
        "page",
        (*JUDGED, "template_change", "engine_change"),
        by_requests=False,
    ),
    "dead_draft": Cause("roll back", "page", JUDGED, outside=True),
    "template_change": Cause("look", "ticket", ("drift", "mix_shift", "slow_service")),
    "engine_change": Cause(
        "rebaseline", "note", ("drift", "mix_shift", "no_gain", "slow_service"), by_requests=False
    ),
    "mix_shift": Cause("leave", "note", ("slow_service",)),
    "drift": Cause("retrain", "ticket", ("no_gain", "slow_service"), outside=True),
    "drafter_fault": Cause("look", "page", ("no_gain", "capacity", "slow_service")),
    "capacity": Cause("add replicas", "ticket", ("no_gain", "slow_service")),
    "no_gain": Cause("lower K", "ticket", ("slow_service",), outside=True),
    "slow_service": Cause("look", "page"),
    "swap_failed": Cause("look", "ticket"),
    "external": Cause("retrain", "ticket", outside=True),
    "source_silent": Cause("look", "page", by_requests=False),
    "source_faulty": Cause("look", "ticket", by_requests=False),
    "clock_back": Cause("look", "note", by_requests=False),
    "clock_ahead": Cause("look", "ticket", by_requests=False),
    "unknown_pair": Cause("look", "ticket", by_requests=False),
    "many_alarms": Cause("look", "page", by_requests=False),
}


def inhibited(cause: str, *, part: str, by: str, by_part: str) -> bool:
    """Does `by` explain `cause`? What is of one part explains the whole and that part; a changed
    mix explains a fall of the whole, never of one part."""
    if by == "mix_shift" and cause == "drift":
        return part == ""
    explains = by in CAUSES and cause in CAUSES[by].inhibits
    return explains and (by_part == "" or part in ("", by_part))
