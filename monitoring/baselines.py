"""What a pair's acceptance is expected to be, and how far a request lies from it.

Knows expected hazards by draft position and their uncertainty, and not where they were measured: a
caller passes them from the pair's report, or they are learnt from its first healthy requests. A
request is compared position by position, so a change of K alone moves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from monitoring.detectors.weights import weight
from monitoring.windows import acceptance
from speculation.records import Counts, Interval, pool

LEARN_AT = (200, 500, 1000)  # healthy requests after which a baseline is learnt, and learnt better
MIN_JUDGED = 30  # a position judged less often has no hazard worth comparing with
KNOWN_WELL = 0.01  # half the interval of a baseline from 1,000 requests; more widens the allowance


@dataclass(frozen=True, slots=True)
class Baseline:
    """alpha-hat with its interval, and the pooled counts by position it came from, where known."""

    acceptance: Interval
    counts: Counts = Counts()  # without positions, alpha-hat is expected at every position
    offset: float = 0.0  # the mean request's deviation: pooling weighs requests by judged tokens

    @classmethod
    def of(cls, requests: Sequence[Counts]) -> Baseline:
        """Learn from requests. ValueError where they judged nothing."""
        interval = acceptance(requests)
        if interval is None:
            raise ValueError(
                f"got {len(requests)} requests that judged no drafted token, wanted some that did: "
                "a baseline needs requests served with a draft"
            )
        pooled = cls(interval, pool(requests))
        found = [one for request in requests if (one := deviation(request, pooled))]
        total = sum(weight(one.judged) for one in found)
        mean = sum(weight(one.judged) * one.value for one in found) / total if total else 0.0
        return replace(pooled, offset=mean)

    @property
    def excess_uncertainty(self) -> float:
        """How far the truth may lie below, beyond what the detectors' allowance has room for."""
        return max(0.0, self.acceptance.estimate - self.acceptance.low - KNOWN_WELL)

    def hazard(self, position: int) -> float | None:
        """Expected accepted over judged at a position (0 is the first drafted token)."""
        judged = self.counts.judged_per_position
        if not judged:
            return self.acceptance.estimate
        if position >= len(judged) or judged[position] < MIN_JUDGED:
            return None
        return self.counts.accepted_per_position[position] / judged[position]

    def weights(self) -> tuple[float, ...]:
        """How often each position was judged, for `windows.standardised`; zero where too rarely."""
        return tuple(float(n) if n >= MIN_JUDGED else 0.0 for n in self.counts.judged_per_position)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Baseline:
        return cls(
            Interval(**stored["acceptance"]),
            Counts.from_json(stored["counts"]),
            stored.get("offset", 0.0),
        )


@dataclass(frozen=True, slots=True)
class Deviation:
    """A request against its baseline, in alpha-hat units: negative means accepted less."""

    judged: int  # tokens at positions that the baseline knows
    accepted: int
    value: float  # (accepted - expected at those positions) / judged, less the baseline's offset


def deviation(request: Counts, baseline: Baseline) -> Deviation | None:
    """Indirect standardisation; None where no position is known to both, as with K = 0.

    >>> flat = Baseline(Interval(0.7, 0.68, 0.72, 200))
    >>> half = Counts(judged_per_position=(10, 5), accepted_per_position=(5, 2))
    >>> round(deviation(half, flat).value, 3)
    -0.233
    """
    judged = accepted = 0
    expected = 0.0
    for position, n in enumerate(request.judged_per_position):
        hazard = baseline.hazard(position)
        if hazard is not None:
            judged += n
            accepted += request.accepted_per_position[position]
            expected += n * hazard
    if not judged:
        return None
    return Deviation(judged, accepted, (accepted - expected) / judged - baseline.offset)
