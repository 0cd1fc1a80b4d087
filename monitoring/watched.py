"""One pair as the monitor sees it: what it is expected to be, its last requests, its detectors.

Knows requests in the order they ended and gives alarms; knows nothing of HTTP, files or the clock,
so the same requests give the same alarms, and what is stored can be gone on from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from monitoring.alarms import alarm_of
from monitoring.baselines import LEARN_AT, Baseline, deviation
from monitoring.detectors.collapse import Collapse
from monitoring.detectors.cusum import Cusum
from monitoring.detectors.weights import weight
from monitoring.diagnosis import diagnose, mismatched
from monitoring.facts import Excursion, Facts
from monitoring.series import Point
from monitoring.windows import Served, acceptance, standardised, summarise
from speculation.records import Alarm, Counts, Exchange, Interval

WINDOW = 100  # requests in a point of the series
KEPT = 200  # requests kept, for the estimate an alarm carries
WEIGHTLESS = ("ngram", "none")  # no weights to break: not dead before they ever lived


@dataclass(frozen=True, slots=True)
class Expected:
    """What is known of a pair beforehand, handed in as values."""

    release: str | None = None  # digest in the pair's manifest
    baseline: Baseline | None = None  # from the pair's report
    drafter: str | None = None  # whom the baseline is of; None for whoever serves the pair


@dataclass(slots=True)
class Watched:
    """One pair served by one drafter. The verb is `update`."""

    pair: str
    drafter: str
    release: str = ""  # digest of what is served
    draft_len: int = 0
    expected_release: str | None = None
    mismatched_since: float | None = None
    baseline: Baseline | None = None
    reported: Baseline | None = None  # the baseline as it was handed in
    learning: bool = True  # until the baseline is known well or handed in, or an alarm ends it
    first: list[Counts] = field(default_factory=list)  # healthy requests, to learn from
    doubted: list[Counts] = field(default_factory=list)  # healthy only once the fall is over
    kept: list[Served] = field(default_factory=list)
    cusum: Cusum = field(default_factory=Cusum)
    collapse: Collapse = field(default_factory=Collapse)
    active: dict[str, Alarm] = field(default_factory=dict)  # by cause; one a cause while it lasts

    def expect(self, expected: Expected) -> None:
        """Take what is known of the pair; a baseline that is new replaces the present one."""
        self.expected_release = expected.release
        ours = expected.drafter in (None, self.drafter)
        if ours and expected.baseline is not None and expected.baseline != self.reported:
            self.reported = expected.baseline
            self.learning, self.first, self.doubted = False, [], []
            self._compare_with(expected.baseline)

    def update(self, exchange: Exchange) -> Alarm | None:
        """One request that has ended. The alarm it sets off, if it is a new one."""
        served = Served.of(exchange)
        self.draft_len = exchange.draft_len
        self.kept.append(served)
        del self.kept[:-KEPT]
        if served.counts.judged:
            self._detect(served)
        return self.serving(exchange.release, at=served.at)

    def serving(self, release: str, *, at: float) -> Alarm | None:
        """What the server says it serves for this pair. The alarm that sets off, if it is new."""
        self.release = release
        differs = mismatched(release, self.expected_release)
        if not differs:
            self.mismatched_since = None
        elif self.mismatched_since is None:
            self.mismatched_since = at
        holds = {
            "release_mismatch": differs,
            "dead_draft": self.collapse.excursion.on,
            "drift": self.cusum.on,
        }
        self.active = {cause: alarm for cause, alarm in self.active.items() if holds[cause]}
        found = next((one for one in diagnose(self._facts(at)) if one.cause in holds), None)
        if found is None or found.cause in self.active:
            return None
        self.active[found.cause] = alarm_of(found, at=at)
        return self.active[found.cause]

    def point(self) -> Point:
        """The last requests as a point of the series. Needs at least one request."""
        window = self.kept[-WINDOW:]
        summary = summarise(window)
        weights = self.baseline.weights() if self.baseline else ()
        return Point(
            window[-1].at,
            self.pair,
            self.drafter,
            self.release,
            self.draft_len,
            summary.requests,
            summary.acceptance,
            standardised([one.counts for one in window], weights),
            summary.acceptance_length,
            summary.hazards,
            summary.forwards_per_request,
            summary.tokens_per_second,
        )

    def _detect(self, served: Served) -> None:
        counts = served.counts
        dead = False
        if self.baseline is not None or self.drafter not in WEIGHTLESS:
            dead = self.collapse.update(
                judged=counts.judged, accepted=counts.accepted, at=served.at
            )
        if dead:  # the fall is explained, and a draft that comes back starts even
            self.cusum = Cusum(allowance=self.cusum.allowance)
            self.doubted = []
            if self.baseline is None:
                self.first = []
            return
        if self.baseline is not None:
            deviates = deviation(counts, self.baseline)
            if deviates is not None:
                self.cusum.update(-deviates.value, at=served.at, weight=weight(deviates.judged))
        if self.learning:
            self._learn(counts)

    def _learn(self, counts: Counts) -> None:
        """Learn from requests that belong to no fall: those since the sum left zero wait."""
        self.doubted.append(counts)
        if self.cusum.on:
            self.learning, self.first, self.doubted = False, [], []
        elif self.cusum.level == 0:
            before, now = len(self.first), len(self.first) + len(self.doubted)
            self.first, self.doubted = self.first + self.doubted, []
            if any(before < n <= now for n in LEARN_AT):
                self._compare_with(Baseline.of(self.first))
            if now >= LEARN_AT[-1]:
                self.learning, self.first = False, []

    def _compare_with(self, baseline: Baseline) -> None:
        self.baseline = baseline
        self.cusum = Cusum(allowance=Cusum().allowance + baseline.excess_uncertainty)
        self.collapse = Collapse(alive=max(baseline.acceptance.estimate / 2, 0.01))

    def _facts(self, at: float) -> Facts:
        fall, excursion = self.cusum, self.collapse.excursion
        present = excursion if excursion.on else fall
        return Facts(
            pair=self.pair,
            drafter=self.drafter,
            at=at,
            release=self.release,
            expected_release=self.expected_release,
            mismatched_since=self.mismatched_since,
            dead=_seen(excursion),
            dying=excursion.level > 0 and fall.level < 2 * fall.threshold,
            fallen=_seen(fall),
            recent=self._since(present.since) if present.on else None,
            baseline=self.baseline.acceptance if self.baseline else None,
        )

    def _since(self, since: float) -> Interval | None:
        return acceptance([one.counts for one in self.kept if one.at >= since])

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Watched:
        def baseline(key: str) -> Baseline | None:
            return None if stored[key] is None else Baseline.from_json(stored[key])

        return cls(
            **{
                **stored,
                "baseline": baseline("baseline"),
                "reported": baseline("reported"),
                "first": [Counts.from_json(one) for one in stored["first"]],
                "doubted": [Counts.from_json(one) for one in stored["doubted"]],
                "kept": [
                    Served(**{**one, "counts": Counts.from_json(one["counts"])})
                    for one in stored["kept"]
                ],
                "cusum": Cusum(**stored["cusum"]),
                "collapse": Collapse(
                    stored["collapse"]["alive"], Cusum(**stored["collapse"]["excursion"])
                ),
                "active": {cause: Alarm.from_json(one) for cause, one in stored["active"].items()},
            }
        )


def _seen(cusum: Cusum) -> Excursion | None:
    return Excursion(cusum.since, cusum.requests, cusum.level) if cusum.on else None
