"""One pair under watch: requests in, facts out. No HTTP, no files.

Knows its baseline, which may be handed in or learnt, its engine and its detectors; knows nothing of
where requests come from or of what its facts are called (`diagnosis.py` does).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from monitoring.baselines import Baseline, Cell, deviation
from monitoring.diagnosis import mismatched
from monitoring.facts import Excursion, Facts
from monitoring.judges import Judges
from monitoring.learning import Learning
from monitoring.mixture import Mixture
from monitoring.paying import (
    LEAST_PACED,
    OFF_BY_COST,
    OFF_BY_REJECTION,
    gain_of,
    load_of,
    queue_p95,
)
from monitoring.series import Point
from monitoring.windows import Served, acceptance, mean_interval, standardised, summarise
from speculation.records import WITHOUT_WEIGHTS, Exchange, Interval

WINDOW = 100  # requests in a point of the series
KEPT = 200  # requests kept, for the estimate an alarm carries
NEW_CELL = 50  # requests of a kind not seen before, until they are compared with their like
LOOKS = 30  # at how full the server is


@dataclass(frozen=True, slots=True)
class Expected:
    """What is known of a pair beforehand, handed in as values."""

    release: str | None = None  # digest in the pair's manifest
    baseline: Baseline | None = None  # from the pair's report
    drafter: str | None = None  # whom the baseline is of; None for whoever serves the pair
    parts: Mapping[str, str] = field(default_factory=dict)  # digests of the release's parts


@dataclass(slots=True)
class Watched:
    """One pair served by one drafter. The verb is `update`."""

    pair: str
    drafter: str
    release: str = ""  # digest of what is served
    draft_len: int = 0
    seen: int = 0  # requests ever
    expected_release: str | None = None
    expected_parts: dict[str, str] = field(default_factory=dict)
    served_parts: dict[str, str] = field(default_factory=dict)
    mismatched_since: float | None = None
    engine: str = ""  # name and version of what serves
    engine_since: float | None = None  # where it is another than the baseline's
    engine_requests: int = 0
    baseline: Baseline | None = None
    reported: Baseline | None = None  # the baseline as it was handed in
    new_cells: dict[str, Cell] = field(default_factory=dict)
    kept: list[Served] = field(default_factory=list)
    full: list[bool] = field(default_factory=list)  # at the last looks: was every slot taken?
    queue_before: float | None = None  # seconds, p95, while the baseline was taken
    learning: Learning = field(default_factory=Learning)
    judges: Judges = field(default_factory=Judges)
    mixture: Mixture = field(default_factory=Mixture)

    def expect(self, expected: Expected) -> None:
        """Take what is known of the pair; a baseline that is new replaces the present one."""
        self.expected_release, self.expected_parts = expected.release, dict(expected.parts)
        ours = expected.drafter in (None, self.drafter)
        if ours and expected.baseline is not None and expected.baseline != self.reported:
            self.reported = expected.baseline
            self.learning.end()
            self._compare_with(expected.baseline, learnt=False)

    def update(self, exchange: Exchange) -> bool:
        """One request that has ended. True while there is something to be said of the pair."""
        served = Served.of(exchange)
        self.seen += 1
        self.draft_len = exchange.draft_len
        self.kept.append(served)
        del self.kept[:-KEPT]
        self._on(exchange.engine, at=served.at)
        self._judge(served)
        return self.serving(exchange.release, at=served.at)

    def serving(self, release: str, *, at: float) -> bool:
        """What the server says it serves for this pair. True as of `update`."""
        self.release = release
        if not mismatched(release, self.expected_release):
            self.mismatched_since = None
        elif self.mismatched_since is None:
            self.mismatched_since = at
        return self.alarming

    def looked(self, *, running: int, slots: int, parts: Mapping[str, str]) -> None:
        """What a look at the server showed of its load, and of its release's parts."""
        self.served_parts = dict(parts)
        if slots > 0:
            self.full = [*self.full, running >= slots][-LOOKS:]

    @property
    def alarming(self) -> bool:
        """May a diagnosis find anything? It costs much more than this."""
        return (
            self.mismatched_since is not None
            or self.engine_since is not None
            or self.judges.on
            or self.mixture.on
            or sum(self.full) * 2 >= LOOKS
            or sum(one.pace == OFF_BY_COST for one in self.kept) >= LEAST_PACED
        )

    def facts(self, at: float) -> Facts:
        """Everything a diagnosis may rest on, as of the requests seen."""
        judges, kept, baseline = self.judges, self.kept, self.baseline
        present = (
            judges.dead or judges.fallen or judges.rejected_off or next(iter(judges.slow), None)
        )
        since = present.since if present else self._earliest()
        slices = () if baseline is None else self.mixture.facts(kept, baseline, since=since)
        return Facts(
            pair=self.pair,
            drafter=self.drafter,
            at=at,
            release=self.release,
            expected_release=self.expected_release,
            expected_parts=self.expected_parts,
            served_parts=self.served_parts,
            mismatched_since=self.mismatched_since,
            dead=judges.dead,
            dying=judges.dying,
            rejected_off=judges.rejected_off,
            fallen=judges.fallen,
            slow=judges.slow,
            confirmed=judges.confirmed,
            burning=judges.burning,
            recent=self._recent(present),
            baseline=None if baseline is None else baseline.acceptance,
            slices=slices,
            mix=self.mixture.mix(self._within()),
            engine=self.engine,
            baseline_engine="" if baseline is None else baseline.engine,
            engine_since=self.engine_since,
            engine_requests=self.engine_requests,
            load=load_of(kept, self.full, before=self.queue_before),
            gain=gain_of(kept),
            forwards_per_request=summarise(kept[-WINDOW:]).forwards_per_request if kept else None,
        )

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

    def _on(self, engine: str, *, at: float) -> None:
        """Another engine accepts at its own rate: its first requests are its own baseline."""
        if engine and engine != self.engine:
            self.engine = engine
            self.engine_since, self.engine_requests = None, 0
            if self.baseline is not None and not self.baseline.engine:
                self.baseline = replace(self.baseline, engine=engine)
            elif self.baseline is not None and self.baseline.engine != engine:
                self.engine_since = at
                self.learning.begin_anew()
            elif self.learning.anew:  # back on the one that the baseline is of
                self.learning.end()
        self.engine_requests += 1

    def _judge(self, served: Served) -> None:
        counts = served.counts
        deviates = None
        if self.baseline is not None and counts.judged and not self._is_new(served):
            deviates = deviation(counts, self.baseline, served.cell)
        rejected = served.pace == OFF_BY_REJECTION
        dead = self.judges.update(
            counts,
            deviates,
            at=served.at,
            floor=None if self.baseline is None else self.baseline.floor,
            rejected_off=rejected,
            may_be_dead=self.baseline is not None or self.drafter not in WITHOUT_WEIGHTS,
        )
        self.mixture.update(served, deviates, self.baseline, dead=dead)
        if self.baseline is not None:
            self.mixture.look(self.kept, self.baseline, at=served.at)
        if dead:
            self.learning.doubt(all_of_it=self.baseline is None)
        elif counts.judged:
            cusum = self.judges.cusum
            learnt = self.learning.add(
                served, falling=cusum.level > 0, fallen=cusum.on, engine=self.engine
            )
            if learnt is not None:
                self._compare_with(learnt, learnt=True)

    def _is_new(self, served: Served) -> bool:
        """Is it of a kind that is still learnt? Of a report's pair all kinds are compared."""
        if (
            self.baseline is None
            or self.reported is not None
            or not self.baseline.is_new(served.cell)
        ):
            return False
        known = self.new_cells.get(served.cell, Cell()) + Cell(1, served.counts)
        self.new_cells[served.cell] = known
        if known.requests >= NEW_CELL:
            del self.new_cells[served.cell]
            cells = {**self.baseline.cells, served.cell: known}
            self.baseline = replace(self.baseline, cells=cells)
        return True

    def _compare_with(self, baseline: Baseline, *, learnt: bool) -> None:
        if not baseline.engine:
            baseline = replace(baseline, engine=self.engine)
        self.baseline, self.new_cells = baseline, {}
        self.judges.compare_with(baseline)
        self.mixture.compare_with(baseline, learnt=learnt)
        self.queue_before = queue_p95(self.kept)
        if baseline.engine == self.engine:
            self.engine_since = None

    def _earliest(self) -> float:
        return self.kept[0].at if self.kept else 0.0

    def _recent(self, present: Excursion | None) -> Interval | None:
        """alpha-hat since the fall began; of the last requests where nothing has fallen."""
        since = self._earliest() if present is None else present.since
        return acceptance([one.counts for one in self.kept if one.at >= since])

    def _within(self) -> Interval | None:
        """By how much requests deviate from others of their kind: what no mix explains."""
        if self.baseline is None:
            return None
        found = [
            one.value
            for served in self.kept
            if (one := deviation(served.counts, self.baseline, served.cell)) is not None
        ]
        return mean_interval(found)

    def to_json(self) -> dict[str, Any]:
        apart = ("baseline", "reported", "new_cells", "kept", "learning", "judges", "mixture")
        plain = {name: getattr(self, name) for name in self.__slots__ if name not in apart}
        return plain | {
            "baseline": None if self.baseline is None else asdict(self.baseline),
            "reported": None if self.reported is None else asdict(self.reported),
            "new_cells": {name: asdict(one) for name, one in self.new_cells.items()},
            "kept": [asdict(one) for one in self.kept],
            "learning": self.learning.to_json(),
            "judges": self.judges.to_json(),
            "mixture": self.mixture.to_json(),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Watched:
        def baseline(key: str) -> Baseline | None:
            return None if stored[key] is None else Baseline.from_json(stored[key])

        return cls(
            **{
                **stored,
                "baseline": baseline("baseline"),
                "reported": baseline("reported"),
                "new_cells": {n: Cell.from_json(one) for n, one in stored["new_cells"].items()},
                "kept": [Served.from_json(one) for one in stored["kept"]],
                "learning": Learning.from_json(stored["learning"]),
                "judges": Judges.from_json(stored["judges"]),
                "mixture": Mixture.from_json(stored["mixture"]),
            }
        )
