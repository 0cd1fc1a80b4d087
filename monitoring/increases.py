"""Looks at a replica's counters become what happened between them, and its lies become faults.

Knows counters that fall, processes that start anew, looks that were missed and clocks that jump;
knows nothing of names or HTTP. A missed look only makes the next increase span longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from monitoring.adapters import Read, Reading, counts_of, requests_of
from monitoring.derived import Derived, derive
from monitoring.facts import SourceFault
from speculation.records import Counts

SAME_START_SECONDS = 1.0  # a process tells its start to the second, or better
STARTS_KEPT = 8
FORGOTTEN_SECONDS = 86_400.0  # a replica that was not seen for so long is another one
MOST_KEYS = 64  # pairs, drafters and slices that are kept of one replica
BACK_SECONDS = 1.0  # a clock is set back by less all the time

Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Increase:
    """What one pair, drafter, slice and engine did between two looks."""

    replica: str
    at: float  # seconds since the epoch, the later look
    seconds: float  # between the looks
    pair: str
    drafter: str
    slice: str
    engine: str
    counts: Counts  # of what is known exactly
    requests: Mapping[str, int]  # ended, by outcome
    derived: Derived | None = None  # where what was judged had to be


@dataclass(slots=True)
class _Replica:
    """One replica at the last look."""

    seen: float
    starts: list[float] = field(default_factory=list)  # of its processes, the present one last
    figures: dict[Key, dict[str, float]] = field(default_factory=dict)


@dataclass(slots=True)
class Increases:
    """All replicas. The verb is `update`."""

    replicas: dict[str, _Replica] = field(default_factory=dict)

    def update(
        self, replica: str, read: Read, *, at: float, seconds: float = 0.0
    ) -> tuple[list[Increase], list[SourceFault]]:
        """A look: what moved since the last one, and what cannot be. Nothing at the first look,
        which has no before. `seconds` were between the looks, by a clock that does not jump."""
        before = self.replicas.get(replica)
        now = _Replica(at, [], {one.key: dict(one.figures) for one in read.readings})
        now.starts = _starts(before, read.started)
        self.replicas[replica] = now
        if before is None:
            self._forget(at)
            return [], []
        faults = []
        if at < before.seen - BACK_SECONDS:
            what = f"our clock went back by {before.seen - at:.0f} s; counted all the same"
            faults.append(SourceFault(replica, "clock_back", at, what))
        anew, lie = _anew(before, now, read)
        _carry(before, now, anew if lie is None else set())
        if lie is not None:
            return [], [*faults, SourceFault(replica, "source_faulty", at, lie)]
        spent = seconds if seconds > 0 else max(0.0, at - before.seen)
        increases = []
        for one, figures in _moved(before, read, anew):
            try:
                increases.append(_increase(replica, one, figures, at=at, seconds=spent))
            except ValueError as error:
                faults.append(SourceFault(replica, "source_faulty", at, str(error), one.pair))
        return increases, faults

    def _forget(self, at: float) -> None:
        """Addresses come and go; those that went long ago are not kept for ever."""
        self.replicas = {
            name: one
            for name, one in self.replicas.items()
            if abs(at - one.seen) < FORGOTTEN_SECONDS
        }

    def to_json(self) -> dict[str, Any]:
        return {
            name: {
                "seen": one.seen,
                "starts": one.starts,
                "figures": [[*key, figures] for key, figures in one.figures.items()],
            }
            for name, one in self.replicas.items()
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Increases:
        def replica(one: Mapping[str, Any]) -> _Replica:
            figures = {(p, d, s, e): dict(found) for p, d, s, e, found in one["figures"]}
            return _Replica(float(one["seen"]), list(one["starts"]), figures)

        return cls({name: replica(one) for name, one in stored.items()})


def _starts(before: _Replica | None, started: float | None) -> list[float]:
    known = [] if before is None else before.starts
    if started is None or (known and abs(known[-1] - started) <= SAME_START_SECONDS):
        return known
    return [*known, started][-STARTS_KEPT:]


def _anew(before: _Replica, now: _Replica, read: Read) -> tuple[set[tuple[str, str]], str | None]:
    """Whose counters began at nothing, by pair and drafter; or what cannot be."""
    everything = {(one.pair, one.drafter) for one in read.readings}
    fell = {
        (pair, drafter)
        for (pair, drafter, part, engine), figures in now.figures.items()
        for name, value in _old(before, (pair, drafter, part, engine)).items()
        if figures.get(name, value) < value
    }
    if now.starts != before.starts:
        if not before.starts:  # it did not say so before: a newer version, or a reading of chance
            return (everything if fell else set()), None
        if any(abs(now.starts[-1] - one) <= SAME_START_SECONDS for one in before.starts[:-1]):
            return set(), (
                "the process it began as comes and goes: several replicas answer at one address; "
                "name each by its own"
            )
        return everything, None
    if fell and read.started is not None:
        pair, drafter = sorted(fell)[0]
        return set(), (
            f"counters of {pair}/{drafter} went down though the process is the same: not believed"
        )
    return fell, None


def _moved(
    before: _Replica, read: Read, anew: set[tuple[str, str]]
) -> Iterator[tuple[Reading, dict[str, float]]]:
    for one in read.readings:
        old = {} if (one.pair, one.drafter) in anew else _old(before, one.key)
        figures = {name: value - old.get(name, 0.0) for name, value in one.figures.items()}
        if any(figures.values()):
            yield one, figures


def _old(before: _Replica, key: Key) -> Mapping[str, float]:
    """What was counted there; a process that only now tells its engine's version is the same."""
    if key in before.figures:
        return before.figures[key]
    alike = (figures for other, figures in before.figures.items() if other[:3] == key[:3])
    return next(alike, {})


def _carry(before: _Replica, now: _Replica, anew: set[tuple[str, str]]) -> None:
    """Keep what the page left out, which may have been cut: were it forgotten, all of it would be
    an increase when it is told again. An empty page is of a process that has counted nothing."""
    if not now.figures:
        return
    told = {key[:3]: key for key in now.figures}
    for key, figures in list(before.figures.items())[-MOST_KEYS:]:
        if key[:2] not in anew:
            place = told.get(key[:3], key)
            now.figures[place] = {**figures, **now.figures.get(place, {})}


def _increase(
    replica: str, one: Reading, figures: Mapping[str, float], *, at: float, seconds: float
) -> Increase:
    """ValueError where the figures cannot be of one another."""
    counts, derived = counts_of(figures), None
    if one.judged_known:
        _check(counts)
    else:
        width = len(counts.accepted_per_position)
        derived = derive(
            counts.rounds,
            counts.drafted,
            counts.accepted_per_position,
            draft_len=width,
            emitted=counts.emitted,
        )
        counts = Counts(emitted=counts.emitted) if derived is None else derived.counts
    return Increase(
        replica,
        at,
        seconds,
        one.pair,
        one.drafter,
        one.slice,
        one.engine,
        counts,
        requests_of({name: value for name, value in figures.items() if value}),
        derived,
    )


def _check(counts: Counts) -> None:
    pairs = zip(counts.accepted_per_position, counts.judged_per_position, strict=True)
    for position, (accepted, judged) in enumerate(pairs):
        if accepted > judged:
            raise ValueError(
                f"got {accepted} accepted of {judged} judged at position {position}: not believed"
            )
    if counts.judged > counts.drafted:
        raise ValueError(f"got {counts.judged} judged of {counts.drafted} drafted: not believed")
    if counts.rounds > counts.drafted:
        raise ValueError(
            f"got {counts.rounds} rounds that drafted {counts.drafted} tokens: not believed"
        )
