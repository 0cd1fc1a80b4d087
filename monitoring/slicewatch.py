"""One slice of a pair's requests under watch: has it fallen, is the draft dead for it?

Knows the deviations of its own requests; knows nothing of other slices or of causes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from monitoring.baselines import Baseline, Cell
from monitoring.detectors.collapse import Collapse
from monitoring.detectors.cusum import Cusum
from monitoring.facts import Excursion, SliceFacts
from monitoring.windows import mean_interval
from speculation.records import Interval

KEPT = 60  # requests, for the estimate that an alarm carries


@dataclass(slots=True)
class SliceWatch:
    """The verb is `update`."""

    name: str
    cusum: Cusum = field(default_factory=Cusum)
    collapse: Collapse = field(default_factory=Collapse)
    recent: list[tuple[float, float]] = field(default_factory=list)  # (at, deviation)
    requests: int = 0  # ever

    def compare_with(self, cusum: Cusum, collapse: Collapse) -> None:
        """Start over against another baseline; what was kept was measured by the old one."""
        self.cusum, self.collapse, self.recent = cusum, collapse, []

    def update(
        self, *, judged: int, accepted: int, deviation: float | None, weight: float, at: float
    ) -> None:
        """One request of the slice."""
        self.requests += 1
        self.collapse.update(judged=judged, accepted=accepted, at=at)
        if deviation is None:
            return
        self.recent.append((at, deviation))
        del self.recent[:-KEPT]
        self.cusum.update(-deviation, at=at, weight=weight)

    def facts(
        self, baseline: Baseline, known: Cell | None, *, before: float, now: float, since: float
    ) -> SliceFacts:
        """What is known of it; `since` is when the pair's fall began."""
        dead = self.collapse.excursion
        own = self.cusum if self.cusum.on else dead if dead.on else None
        begun = since if own is None else own.since
        values = [value for at, value in self.recent if at >= begun]
        expected = _expected(baseline, known)
        return SliceFacts(
            self.name,
            len(values),
            _recent(expected, values),
            expected,
            before,
            now,
            seen(self.cusum, "cusum"),
            seen(dead, "collapse"),
        )

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> SliceWatch:
        return cls(
            stored["name"],
            Cusum(**stored["cusum"]),
            Collapse.from_json(stored["collapse"]),
            [(at, value) for at, value in stored["recent"]],
            stored["requests"],
        )


def seen(cusum: Cusum, detector: str) -> Excursion | None:
    """What a detector says while it is on."""
    if not cusum.on:
        return None
    return Excursion(cusum.since, cusum.requests, cusum.level, detector)


def _expected(baseline: Baseline, known: Cell | None) -> Interval:
    """Of the slice where the baseline has enough of it, else the pair's."""
    alpha = None if known is None else known.counts.acceptance
    if known is None or alpha is None or known.requests < 2 or baseline.spread is None:
        return baseline.acceptance
    half = 1.96 * baseline.spread / math.sqrt(known.requests)
    return Interval(alpha, max(0.0, alpha - half), min(1.0, alpha + half), known.requests)


def _recent(expected: Interval, values: list[float]) -> Interval | None:
    """alpha-hat as it would read at the positions and of the kinds that are expected."""
    mean = mean_interval(values)
    if mean is None:
        return None
    middle, low, high = (
        min(max(expected.estimate + edge, 0.0), 1.0)
        for edge in (mean.estimate, mean.low, mean.high)
    )
    return Interval(middle, low, high, mean.n)
