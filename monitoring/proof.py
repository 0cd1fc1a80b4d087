"""The proof that the detectors can be trusted: what they say of streams whose truth is known.

Requests are simulated (simulation.py): healthy, fallen by known amounts, dead, at another K, under
a daily wave, of another mix. Every detector sees them, as they run together in `Watched`, and so do
detectors that others would use (naive.py). The shipped combination is held to bounds, and so is the
proof: one that a naive detector passes too shows nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from statistics import median
from typing import Protocol

from monitoring.causes import CAUSES
from monitoring.diagnosis import diagnose
from monitoring.naive import NAMES, Naive
from monitoring.simulation import SHORT_LEAD, Scenario, requests_of, scenarios
from monitoring.watched import Watched
from speculation.records import Exchange

COMBINATION = "shipped combination"
OURS = ("CUSUM", "collapse", "confidence sequence", "ADWIN", "burn rate", "mix shift", COMBINATION)
AT = 0.10  # the correlation that the bounds are promised at
DELAYS = {  # median requests from the fall to the alarm, at most
    **{"fall 0.10": 200, "fall 0.20": 100, "collapse": 20},
    **{"fall 0.10 after 200": 200, "fall 0.20 after 200": 100, "collapse after 200": 20},
    "collapse, K adapts to 0": 20,
    "one slice of ten": 400,  # 40 of its own
}
FALSE_SHARE = 1 / 40  # of streams without a fall that may alarm
NAIVE_SHARE = 0.90  # of healthy streams in which a naive detector alarms, or the proof shows little
NAIVE_LIMIT = 1000  # requests that they see: they alarm soon, and cost much
NOTED = 20  # requests until the next diagnosis, while the last one was worth a note
Progress = Callable[[int, int, str], None]


class Watch(Protocol):
    """Detectors over one stream."""

    def update(self, exchange: Exchange) -> set[str]:
        """One request; the names of those that are on."""
        ...

    def drop(self, name: str) -> None:
        """Nobody waits for it any more."""
        ...


class Shipped:
    """What runs in service, and each of its parts as it runs there."""

    def __init__(self, seed: int) -> None:
        self.watched = Watched("p-1", "head")
        self._told, self._wait = False, 0

    def update(self, exchange: Exchange) -> set[str]:
        alarming = self.watched.update(exchange)
        judges = self.watched.judges
        parts = (
            *(judges.cusum.on, judges.collapse.excursion.on, judges.confirm.on, judges.adwin.on),
            *(judges.burn.on, any(one.on for one in self.watched.mixture.shifts.values())),
        )
        found = {name for name, on in zip(OURS, parts, strict=False) if on}
        self._wait -= 1
        if alarming and not self._told and self._wait < 0:
            told = diagnose(self.watched.facts(exchange.started))
            if any(CAUSES[one.cause].severity != "note" for one in told):
                found.add(COMBINATION)
            elif told:  # a diagnosis costs more than all else, and a note lasts
                self._wait = NOTED
        return found

    def drop(self, name: str) -> None:
        self._told = self._told or name == COMBINATION  # the others are one


Make = Callable[[int], Watch]


@dataclass(frozen=True, slots=True)
class Tally:
    """How each detector did on one scenario: requests from its lead to the first alarm of each
    stream, infinite where there was none."""

    scenario: Scenario
    first: Mapping[str, tuple[float, ...]]

    def alarmed(self, name: str) -> int:
        return sum(math.isfinite(one) for one in self.first[name])

    def delay(self, name: str, share: float = 0.5) -> float:
        """The median, or another quantile, of requests to the alarm."""
        found = sorted(self.first[name])
        if share == 0.5:
            return median(found)
        return found[min(len(found) - 1, int(share * len(found)))]


def first_alarms(
    scenario: Scenario, seed: int, make: Make, names: Sequence[str]
) -> dict[str, float]:
    """The first alarm of each detector on one stream. One in the lead is none of a fall, and is
    one of a healthy stream."""
    watch, found = make(seed), dict.fromkeys(names, math.inf)
    waiting, fallen = set(names), scenario.fall > 0
    for number, exchange in enumerate(requests_of(scenario, seed), start=1 - scenario.lead):
        on = watch.update(exchange)
        if number < 1 and fallen:
            continue
        for name in on & waiting:
            found[name] = float(max(number, 1))
            waiting.discard(name)
            watch.drop(name)
        if not waiting:
            break
    return found


@dataclass(frozen=True, slots=True)
class Proof:
    """All tallies, and what follows from them."""

    tallies: tuple[Tally, ...]
    naive: tuple[str, ...]

    def of(self, name: str, correlation: float = AT) -> Tally | None:
        alike = (t for t in self.tallies if t.scenario.correlation == correlation)
        return next((one for one in alike if one.scenario.name == name), None)

    @property
    def faults(self) -> list[str]:
        """Why the proof fails; nothing where it holds."""
        return [*self._late(), *self._false(), *self._blunt()]

    def _late(self) -> list[str]:
        said = []
        for name, most in DELAYS.items():
            found = self.of(name)
            if found is not None and (delay := found.delay(COMBINATION)) > most:
                said.append(f"{name}: seen after {delay:g} requests (median), wanted {most}")
        return said

    def _false(self) -> list[str]:
        said = []
        for one in self.tallies:
            scenario, false = one.scenario, one.alarmed(COMBINATION)
            streams = len(one.first[COMBINATION])
            most = math.ceil(FALSE_SHARE * streams)
            if scenario.fall == 0 and scenario.correlation == AT and false > most:
                said.append(f"{scenario.name}: {false} of {streams} alarmed falsely, wanted {most}")
        return said

    def _blunt(self) -> list[str]:
        found = self.of("healthy")
        if found is None:
            return []
        least = {name: NAIVE_SHARE * len(found.first[name]) for name in self.naive}
        return [
            f"the naive {name} alarms in {found.alarmed(name)} of {len(found.first[name])} healthy "
            "streams, so that these cannot tell it from what is shipped"
            for name in self.naive
            if found.alarmed(name) < least[name]
        ]


def prove(
    *,
    streams: int = 40,
    naive_streams: int = 20,
    cases: Iterable[Scenario] | None = None,  # None: `scenarios`
    shipped: Make = Shipped,
    others: Make | None = Naive,  # None: none
    workers: int = 1,
    progress: Progress = lambda done, total, what: None,
) -> Proof:
    """Let every detector see every stream. The same arguments give the same figures, however many
    processes (`workers`) share the work."""
    cases = list(scenarios() if cases is None else cases)
    work: list[tuple[int, Scenario, int, Make, tuple[str, ...]]] = []
    for place, scenario in enumerate(cases):
        work += [(place, scenario, seed, shipped, OURS) for seed in range(streams)]
        if others is not None and scenario.kind in ("healthy", "fall"):
            short = replace(scenario, lead=SHORT_LEAD, requests=min(scenario.requests, NAIVE_LIMIT))
            work += [(place, short, seed, others, NAMES) for seed in range(naive_streams)]
    found: list[dict[str, list[tuple[int, float]]]] = [{} for _ in cases]

    def finish(place: int, seed: int, alarms: Mapping[str, float], done: int) -> None:
        for name, first in alarms.items():
            found[place].setdefault(name, []).append((seed, first))
        progress(done, len(work), "watching")

    if workers == 1:
        for done, (place, scenario, seed, make, names) in enumerate(work, start=1):
            finish(place, seed, first_alarms(scenario, seed, make, names), done)
    else:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            asked: dict[Future[dict[str, float]], tuple[int, int]] = {
                pool.submit(first_alarms, scenario, seed, make, names): (place, seed)
                for place, scenario, seed, make, names in work
            }
            for done, future in enumerate(as_completed(asked), start=1):
                finish(*asked[future], future.result(), done)
    tallies = tuple(
        Tally(scenario, {name: tuple(one for _, one in sorted(of)) for name, of in by.items()})
        for scenario, by in zip(cases, found, strict=True)
    )
    return Proof(tallies, NAMES if others is not None else ())
