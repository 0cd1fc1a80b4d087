"""The slices of one pair's requests: each under watch by itself, and their shares of the whole.

Knows names of slices and what belongs to each; knows nothing of causes. Kinds with one slice only
are everything, and say nothing of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from monitoring.baselines import Baseline, Deviation
from monitoring.detectors.mixing import MixShift
from monitoring.detectors.weights import weight
from monitoring.facts import Mix, SliceFacts
from monitoring.judges import collapse_for, cusum_for
from monitoring.slices import kind, slices_in
from monitoring.slicewatch import SliceWatch
from monitoring.windows import Served
from speculation.records import Interval

MOST_OF_A_KIND = 16  # slices; further ones are "other"
OTHER = "other"
USUAL = 500  # requests whose shares are the usual ones
LEAST_USUAL, LEAST_NOW = 200, 100  # requests before shares are compared
LOOK_EVERY = 20  # requests


@dataclass(slots=True)
class Mixture:
    """The verb is `update`."""

    watches: dict[str, SliceWatch] = field(default_factory=dict)
    usual: dict[str, int] = field(default_factory=dict)  # requests of the first, by slice
    usual_requests: int = 0
    shifts: dict[str, MixShift] = field(default_factory=dict)  # by kind
    since_look: int = 0

    def compare_with(self, baseline: Baseline, *, learnt: bool) -> None:
        """Start over against a baseline. The shares of one that was learnt here are the usual ones;
        a report's prompts are no traffic, so its pair's first requests are."""
        known = baseline.slices()
        for name, watch in self.watches.items():
            self._compare(watch, baseline, known.get(name) is not None)
        self.shifts, self.since_look = {}, 0
        self.usual = {name: cell.requests for name, cell in known.items()} if learnt else {}
        self.usual_requests = sum(cell.requests for cell in baseline.cells.values()) * learnt

    def update(
        self, served: Served, deviates: Deviation | None, baseline: Baseline | None, *, dead: bool
    ) -> None:
        """One request; while the whole draft is dead nothing is said of its slices."""
        names = self._names(served)
        if baseline is None:
            return
        if self.usual_requests < USUAL:
            self._usual(names)
        counts = served.counts
        if not counts.judged or dead:
            return
        for name in names:
            watch = self.watches.get(name)
            if watch is None:
                watch = self.watches[name] = SliceWatch(name)
                self._compare(watch, baseline, name in baseline.slices())
            watch.update(
                judged=counts.judged,
                accepted=counts.accepted,
                deviation=None if deviates is None else deviates.value,
                weight=0.0 if deviates is None else weight(deviates.judged),
                at=served.at,
            )
        self.since_look += 1

    def look(self, kept: Sequence[Served], baseline: Baseline, *, at: float) -> None:
        """Compare the shares of the last requests with the usual ones, now and then."""
        if self.since_look < LOOK_EVERY:
            return
        self.since_look = 0
        if self.usual_requests < LEAST_USUAL or len(kept) < LEAST_NOW:
            return
        now = self._shares(kept)
        were = {
            name: alpha
            for name, cell in baseline.slices().items()
            if (alpha := cell.counts.acceptance) is not None
        }
        for one in {kind(name) for name in now}:
            before = {name: float(n) for name, n in self.usual.items() if kind(name) == one}
            last = {name: float(n) for name, n in now.items() if kind(name) == one}
            if len(before.keys() | last.keys()) > 1:
                shift = self.shifts.setdefault(one, MixShift())
                shift.update(before, last, were=were, at=at)

    @property
    def on(self) -> bool:
        return any(shift.on for shift in self.shifts.values()) or any(
            watch.cusum.on or watch.collapse.excursion.on for watch in self._told()
        )

    def mix(self, within: Interval | None) -> Mix | None:
        """What the kind whose mix explains most did."""
        if not self.shifts:
            return None
        most = max(self.shifts.values(), key=lambda one: (one.on, abs(one.by_mix)))
        return Mix(most.on, most.since, most.p_value, most.by_mix, within)

    def facts(
        self, kept: Sequence[Served], baseline: Baseline, *, since: float
    ) -> tuple[SliceFacts, ...]:
        now, known = self._shares(kept), baseline.slices()
        return tuple(
            watch.facts(
                baseline,
                known.get(watch.name),
                before=self.usual.get(watch.name, 0) / max(1, self.usual_requests),
                now=now[watch.name] / max(1, len(kept)),
                since=since,
            )
            for watch in self._told()
        )

    def _told(self) -> Iterator[SliceWatch]:
        """Of kinds that have more than one."""
        kinds = Counter(kind(name) for name in self.watches)
        return (one for one in self.watches.values() if kinds[kind(one.name)] > 1)

    def _names(self, served: Served) -> list[str]:
        return [self._known(name) for name in slices_in(served.cell)]

    def _known(self, name: str) -> str:
        """Its own name, or that of the others of its kind, where there are too many."""
        if name in self.watches:
            return name
        one = kind(name)
        full = sum(kind(each) == one for each in self.watches) >= MOST_OF_A_KIND
        return f"{one}={OTHER}" if full else name

    def _usual(self, names: Sequence[str]) -> None:
        self.usual_requests += 1
        for name in names:
            self.usual[name] = self.usual.get(name, 0) + 1

    def _shares(self, kept: Sequence[Served]) -> Counter[str]:
        return Counter(name for one in kept for name in self._names(one))

    def _compare(self, watch: SliceWatch, baseline: Baseline, known: bool) -> None:
        cell = baseline.slices().get(watch.name) if known else None
        alpha = None if cell is None else cell.counts.acceptance
        usual = baseline.acceptance.estimate if alpha is None else alpha
        watch.compare_with(cusum_for(baseline), collapse_for(usual))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Mixture:
        return cls(
            {name: SliceWatch.from_json(one) for name, one in stored["watches"].items()},
            dict(stored["usual"]),
            stored["usual_requests"],
            {name: MixShift(**one) for name, one in stored["shifts"].items()},
            stored["since_look"],
        )
