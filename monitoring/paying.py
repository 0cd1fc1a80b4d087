"""Whether drafting pays, and how busy the server is: from what requests say of themselves.

Knows the states of the server's pace by their names; knows nothing of acceptance.
"""

from __future__ import annotations

from collections.abc import Sequence

from monitoring.facts import Gain, Load
from monitoring.windows import Served

LEAST_PACED = 50  # requests whose pace is known, before anything is said of what it did
OFF_BY_REJECTION, OFF_BY_COST = "off_by_rejection", "off_by_cost"  # speculation.seats.State


def load_of(kept: Sequence[Served], full: Sequence[bool], *, before: float | None) -> Load:
    """How long requests waited; `full` says at which looks every slot was taken, and `before` how
    long they waited while the baseline was taken."""
    return Load(
        queue_p95_seconds=queue_p95(kept),
        queue_p95_before_seconds=before,
        full_share=sum(full) / len(full) if full else None,
    )


def gain_of(kept: Sequence[Served]) -> Gain | None:
    """What the pace did with the last requests; None where too few say so."""
    paced = [one for one in kept if one.pace is not None]
    if len(paced) < LEAST_PACED:
        return None
    off = [one for one in paced if one.pace == OFF_BY_COST]
    loaded = sum(one.running > 1 for one in off) * 2 > len(off)
    return Gain(
        paced[-1].pace,
        len(off) / len(paced),
        load="loaded" if loaded else "alone",
        since=off[0].at if off else None,
        requests=len(paced),
    )


def queue_p95(kept: Sequence[Served]) -> float | None:
    """Seconds that 95 of 100 requests waited at most."""
    if not kept:
        return None
    return sorted(one.queue_seconds for one in kept)[min(len(kept) - 1, int(0.95 * len(kept)))]
