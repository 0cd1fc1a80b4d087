"""What the monitor shows of a look: points of the series, and figures for its own metrics.

Knows what was looked at and what is watched; decides nothing and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from monitoring.adapters import Gauges
from monitoring.alarms import Alarms
from monitoring.exporting import Figures, Shown
from monitoring.increases import Increase
from monitoring.looked import Looked
from monitoring.series import Gauge, Throughput
from monitoring.state import State
from monitoring.watched import Watched
from speculation.records import pool


def shown(looked: Looked, state: State, alarms: Alarms, *, at: float) -> Shown:
    """Everything of one look."""
    silent = {one.source for one in looked.faults if one.kind == "source_silent"}
    return Shown(
        at,
        alarms.open(),
        [one for watched in state.watched for one in figures(watched)],
        {url: url not in silent for url in state.reached.replicas},
    )


def gauges(said: Sequence[Gauges], *, at: float) -> Iterator[Gauge]:
    """What servers say of themselves."""
    for one in said:
        rate, length = one.acceptance_rate, one.acceptance_length
        yield Gauge(at, one.pair, one.drafter, one.source, rate, length, one.told)


def throughputs(increases: Sequence[Increase]) -> Iterator[Throughput]:
    """What the servers' own counters did between two looks, by pair and drafter: replicas and
    adapters are added up."""
    apart: dict[tuple[str, str], list[Increase]] = {}
    for one in increases:
        apart.setdefault((one.pair, one.drafter), []).append(one)
    for (pair, drafter), each in apart.items():
        counts = pool([one.counts for one in each])
        seconds = max(one.seconds for one in each)
        if seconds <= 0:
            continue
        yield Throughput(
            max(one.at for one in each),
            pair,
            drafter,
            seconds,
            sum(sum(one.requests.values()) for one in each),
            sum(one.requests.get("error", 0) for one in each),
            counts.acceptance,
            counts.emitted / seconds,
        )


def figures(watched: Watched) -> Iterator[Figures]:
    """A pair as the monitor's own metrics show it, then its slices."""
    if not watched.kept:
        return
    facts = watched.facts(watched.kept[-1].at)
    yield Figures(
        watched.pair,
        watched.drafter,
        "",
        facts.recent,
        None if facts.baseline is None else facts.baseline.estimate,
        None if facts.forwards_per_request is None else facts.forwards_per_request.estimate,
        watched.seen,
        watched.judges.below_floor,
    )
    for one in facts.slices:
        usual = None if one.expected is None else one.expected.estimate
        requests = watched.mixture.watches[one.name].requests
        yield Figures(watched.pair, watched.drafter, one.name, one.recent, usual, requests=requests)
