"""What the last requests of a pair say: alpha-hat, hazards, forwards a request, tokens a second.

Knows pooled counts and intervals by request; knows nothing of where requests come from or of
alarms. Tokens of one request are correlated, so the unit of every interval is the request.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from monitoring.slices import cell_of, slices_of
from speculation.records import Counts, Exchange, Interval, pool

CONFIDENCE = 0.95
FINISHED = ("stop", "length")  # a cancelled request spent fewer forwards than it would have


@dataclass(frozen=True, slots=True)
class Served:
    """What monitoring keeps of one exchange: no token ids, whatever was captured."""

    at: float  # seconds since the epoch, when it ended
    counts: Counts
    busy_seconds: float  # prefill and decode
    finished: bool  # ended by itself, so its forwards are those of a whole request
    cell: str = ""  # what kind of request it was, as `slices.cell_of` names it
    queue_seconds: float = 0.0
    pace: str | None = None  # its drafter's state when it ended, where K adapts
    running: int = 0  # requests in the engine then

    @classmethod
    def of(cls, exchange: Exchange) -> Served:
        busy = exchange.prefill_seconds + exchange.decode_seconds
        return cls(
            exchange.started + exchange.queue_seconds + busy,
            exchange.counts,
            busy,
            exchange.outcome in FINISHED,
            cell_of(slices_of(exchange)),
            exchange.queue_seconds,
            exchange.pace,
            exchange.running,
        )

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Served:
        return cls(**{**stored, "counts": Counts.from_json(stored["counts"])})


@dataclass(frozen=True, slots=True)
class Summary:
    """One window of requests. None means nothing to say: no draft was judged, none finished."""

    requests: int
    acceptance: Interval | None  # alpha-hat
    acceptance_length: float | None  # tokens a round yields
    hazards: tuple[float | None, ...]  # by draft position
    forwards_per_request: Interval | None
    tokens_per_second: (
        float | None
    )  # emitted over prefill and decode seconds, as one request sees it


def summarise(served: Sequence[Served]) -> Summary:
    """Pool a window. Requests that judged nothing (K = 0, prefill only) count as forwards alone."""
    counts = pool([one.counts for one in served])
    finished = [one for one in served if one.finished]
    busy_seconds = sum(one.busy_seconds for one in served)
    return Summary(
        len(served),
        acceptance([one.counts for one in served]),
        counts.acceptance_length,
        counts.hazards,
        ratio_interval([one.counts.forwards for one in finished], [1] * len(finished)),
        counts.emitted / busy_seconds if busy_seconds > 0 else None,
    )


def acceptance(requests: Sequence[Counts]) -> Interval | None:
    """alpha-hat of requests pooled, with its interval by request; None where nothing was judged.

    >>> two = [Counts(judged_per_position=(10,), accepted_per_position=(n,)) for n in (8, 6)]
    >>> acceptance(two).estimate
    0.7
    """
    judged = [counts for counts in requests if counts.judged]
    return ratio_interval(
        [counts.accepted for counts in judged], [counts.judged for counts in judged], ceiling=1.0
    )


def standardised(requests: Sequence[Counts], weights: Sequence[float]) -> Interval | None:
    """alpha-hat as it would read had positions been judged in the proportions `weights`.

    This is direct standardisation: two windows at different K become comparable. Positions that the
    window never judged are left out and the weights renormalised; None where none is left.
    """
    counts = pool(requests)
    shared = [
        (j, weight)
        for j, (weight, judged) in enumerate(zip(weights, counts.judged_per_position, strict=False))
        if judged and weight > 0
    ]
    if not shared:
        return None
    total = sum(weight for _, weight in shared)
    share = {j: weight / total for j, weight in shared}
    hazard = {j: counts.accepted_per_position[j] / counts.judged_per_position[j] for j in share}
    judging = [one for one in requests if one.judged]
    influences = [
        sum(
            share[j]
            * (one.accepted_per_position[j] - hazard[j] * one.judged_per_position[j])
            / counts.judged_per_position[j]
            for j in share
            if j < len(one.judged_per_position)
        )
        for one in judging
    ]
    estimate = sum(share[j] * hazard[j] for j in share)
    return _bounded(estimate, influences, ceiling=1.0)


def ratio_interval(
    numerators: Sequence[float], denominators: Sequence[float], *, ceiling: float = math.inf
) -> Interval | None:
    """Pooled ratio with a 95 % interval, clustered: one pair of numbers a request.

    The linearised variance of a ratio of sums (Cochran, Sampling Techniques, 1977, eq. 6.13) with
    Student's t. `ceiling` is the largest value the ratio can have. None without a denominator.
    """
    total = sum(denominators)
    if total <= 0:
        return None
    estimate = sum(numerators) / total
    influences = [
        (numerator - estimate * denominator) / total
        for numerator, denominator in zip(numerators, denominators, strict=True)
    ]
    return _bounded(estimate, influences, ceiling=ceiling)


def mean_interval(values: Sequence[float]) -> Interval | None:
    """A mean with its 95 % interval by Student's t; None of fewer than two.

    >>> str(mean_interval([-0.1, 0.1, 0.0]))
    '0.000 [-0.241, 0.241] (n=3)'
    """
    n = len(values)
    if n < 2:
        return None
    mean = sum(values) / n
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1))
    half = t_quantile((1 + CONFIDENCE) / 2, n - 1) * spread / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def _bounded(estimate: float, influences: Sequence[float], *, ceiling: float) -> Interval:
    n = len(influences)
    if n < 2:  # one request says nothing of how requests differ
        return Interval(estimate, 0.0, ceiling, n)
    spread = math.sqrt(n / (n - 1) * sum(value * value for value in influences))
    half = t_quantile((1 + CONFIDENCE) / 2, n - 1) * spread
    low, high = max(0.0, estimate - half), min(ceiling, estimate + half)
    if half == 0 and ceiling == 1.0:  # all or none accepted: exact bound, each request one trial
        tail = ((1 - CONFIDENCE) / 2) ** (1 / n)
        low, high = (tail, 1.0) if estimate >= 1 else (low, max(high, 1 - tail))
    return Interval(estimate, low, high, n)


def t_quantile(probability: float, degrees: int) -> float:
    """Student's t from the normal quantile (Abramowitz and Stegun 1964, 26.7.5).

    Off by 0.02 at 4 degrees of freedom, by less beyond; scipy is not part of the lean base.

    >>> round(t_quantile(0.975, 30), 3)
    2.042
    """
    z = NormalDist().inv_cdf(probability)
    return (
        z
        + (z**3 + z) / (4 * degrees)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * degrees**3)
    )
