"""What a pair's acceptance is expected to be, and how far a request lies from it.

Knows expected hazards by draft position and by cell (what kind of request it is), and their
uncertainty; not where they were measured: a caller passes them from the pair's report, or they are
learnt from its first healthy requests. A request is compared position by position with requests of
its kind, so neither a change of K alone nor of the mix alone moves anything.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from monitoring.detectors.weights import weight
from monitoring.slices import kind, slices_in
from monitoring.windows import acceptance
from speculation.records import Counts, Interval, pool

LEARN_AT = (200, 500, 1000)  # healthy requests after which a baseline is learnt, and learnt better
MIN_JUDGED = 30  # a position judged less often has no hazard worth comparing with
KNOWN_WELL = 0.01  # half the interval of a baseline from 1,000 requests; more widens the allowance
PRIOR = 50.0  # judged tokens of the pair that a cell's hazard is shrunk by
MOST_CELLS = 64  # the commonest; of the others the pair's hazards are expected
FLOOR_QUANTILE, FLOOR_REQUESTS = 0.005, 500  # a request below it is one that the draft was bad for
FLOOR_SPREADS = (2.75, 3.25)  # no nearer than so many, where so many requests tell, or fewer


@dataclass(frozen=True, slots=True)
class Cell:
    """Requests of one kind."""

    requests: int = 0
    counts: Counts = Counts()

    def __add__(self, other: Cell) -> Cell:
        return Cell(self.requests + other.requests, self.counts + other.counts)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Cell:
        return cls(stored["requests"], Counts.from_json(stored["counts"]))


@dataclass(frozen=True, slots=True)
class Baseline:
    """alpha-hat with its interval, and the pooled counts by position it came from, where known."""

    acceptance: Interval
    counts: Counts = Counts()  # without positions, alpha-hat is expected at every position
    offset: float = 0.0  # the mean request's deviation: pooling weighs requests by judged tokens
    spread: float | None = None  # standard deviation of a whole request's deviation
    floor: float | None = None  # deviation below which a request is a bad one
    cells: Mapping[str, Cell] = field(default_factory=dict)
    engine: str = ""  # name and version of what it was taken on

    @classmethod
    def of(
        cls, requests: Sequence[Counts], cells: Sequence[str] = (), *, engine: str = ""
    ) -> Baseline:
        """Learn from requests, each of a cell where these are told. ValueError where they judged
        nothing."""
        interval = acceptance(requests)
        if interval is None:
            raise ValueError(
                f"got {len(requests)} requests that judged no drafted token, wanted some that did: "
                "a baseline needs requests served with a draft"
            )
        places = list(cells) if cells else [""] * len(requests)
        pooled = cls(interval, pool(requests), cells=_cells(requests, places), engine=engine)
        found = [
            one
            for request, cell in zip(requests, places, strict=True)
            if (one := deviation(request, pooled, cell))
        ]
        weights = [weight(one.judged) for one in found]
        total = sum(weights)
        if not total:
            return pooled
        mean = sum(w * one.value for w, one in zip(weights, found, strict=True)) / total
        # By unit of weight, as the CUSUM adds them up.
        squares = sum((w * (one.value - mean)) ** 2 for w, one in zip(weights, found, strict=True))
        spread = math.sqrt(squares / total)
        return replace(
            pooled,
            offset=mean,
            spread=spread if len(found) >= MIN_JUDGED else None,
            floor=_floor([one.value - mean for one in found], spread),
        )

    @property
    def uncertainty(self) -> float:
        """How far the truth may lie below the estimate."""
        return max(0.0, self.acceptance.estimate - self.acceptance.low)

    @property
    def excess_uncertainty(self) -> float:
        """The same beyond what the detectors' allowance has room for."""
        return max(0.0, self.uncertainty - KNOWN_WELL)

    def hazard(self, position: int, cell: str = "") -> float | None:
        """Expected accepted over judged at a position (0 is the first drafted token).

        A cell's own, shrunk to the pair's (empirical Bayes; Efron and Morris, J. Am. Statist.
        Assoc. 70, 1975): of a kind seen seldom little is known but that it is this pair's.
        """
        judged = self.counts.judged_per_position
        if not judged:
            return self.acceptance.estimate
        if position >= len(judged) or judged[position] < MIN_JUDGED:
            return None
        usual = self.counts.accepted_per_position[position] / judged[position]
        known = self.cells.get(cell)
        if known is None or position >= len(known.counts.judged_per_position):
            return usual
        accepted = known.counts.accepted_per_position[position]
        return (accepted + PRIOR * usual) / (known.counts.judged_per_position[position] + PRIOR)

    def weights(self) -> tuple[float, ...]:
        """How often each position was judged, for `windows.standardised`; zero where too rarely."""
        return tuple(float(n) if n >= MIN_JUDGED else 0.0 for n in self.counts.judged_per_position)

    def slices(self) -> dict[str, Cell]:
        """Its cells added up by slice."""
        found: dict[str, Cell] = {}
        for cell, known in self.cells.items():
            for name in slices_in(cell):
                found[name] = found.get(name, Cell()) + known
        return found

    def is_new(self, cell: str) -> bool:
        """Is it a kind of request that nothing is known of, and that may be learnt as it comes? Not
        another adapter's: whether a draft suits that is what is to be found out."""
        if not self.cells or cell in self.cells or len(self.cells) >= MOST_CELLS:
            return False
        adapters = {one for known in self.cells for one in slices_in(known) if _adapter(one)}
        return all(one in adapters for one in slices_in(cell) if _adapter(one))

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Baseline:
        plain = {
            key: stored[key] for key in ("offset", "spread", "floor", "engine") if key in stored
        }
        return cls(
            Interval(**stored["acceptance"]),
            Counts.from_json(stored["counts"]),
            **plain,
            cells={name: Cell.from_json(one) for name, one in stored.get("cells", {}).items()},
        )


@dataclass(frozen=True, slots=True)
class Deviation:
    """A request against its baseline, in alpha-hat units: negative means accepted less."""

    judged: int  # tokens at positions that the baseline knows
    accepted: int
    value: float  # (accepted - expected at those positions) / judged, less the baseline's offset


def deviation(request: Counts, baseline: Baseline, cell: str = "") -> Deviation | None:
    """Indirect standardisation; None where no position is known to both, as with K = 0.

    >>> flat = Baseline(Interval(0.7, 0.68, 0.72, 200))
    >>> half = Counts(judged_per_position=(10, 5), accepted_per_position=(5, 2))
    >>> round(deviation(half, flat).value, 3)
    -0.233
    """
    judged = accepted = 0
    expected = 0.0
    for position, n in enumerate(request.judged_per_position):
        hazard = baseline.hazard(position, cell)
        if hazard is not None:
            judged += n
            accepted += request.accepted_per_position[position]
            expected += n * hazard
    if not judged:
        return None
    return Deviation(judged, accepted, (accepted - expected) / judged - baseline.offset)


def _cells(requests: Sequence[Counts], places: Sequence[str]) -> dict[str, Cell]:
    commonest = Counter(cell for cell in places if cell).most_common(MOST_CELLS)
    found = {cell: Cell() for cell, _ in commonest}
    for request, cell in zip(requests, places, strict=True):
        if cell in found:
            found[cell] += Cell(1, request)
    return found


def _floor(values: Sequence[float], spread: float) -> float | None:
    if len(values) < MIN_JUDGED:
        return None
    if len(values) < FLOOR_REQUESTS:
        return -FLOOR_SPREADS[1] * spread
    quantile = sorted(values)[int(FLOOR_QUANTILE * len(values))]
    return min(quantile, -FLOOR_SPREADS[0] * spread)


def _adapter(name: str) -> bool:
    return kind(name) == "adapter"
