"""The loop that watches one server: polls it, writes the series, raises alarms into the outbox.

Knows the order of things and the monitoring folder of a home; decides nothing itself (`watched.py`
and `diagnosis.py` do) and delivers nothing (`flows` does).
"""

from __future__ import annotations

import fcntl
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import httpx

from monitoring.answers import AHEAD_SECONDS
from monitoring.endpoint import Endpoint, log, on_this_machine
from monitoring.outbox import Outbox
from monitoring.scrape import Increases
from monitoring.series import Entry, Mark, Throughput, append
from monitoring.state import load, save
from monitoring.watched import Expected, Watched
from monitoring.whole import sweep

EARLIER_SECONDS = 3600.0  # how far back a monitor without a past begins to read


class MonitorRunningError(ValueError):
    """Another monitor watches for the same home."""


@dataclass(frozen=True, slots=True)
class Paths:
    """Where the monitor writes under a home folder."""

    home: Path

    @property
    def folder(self) -> Path:
        return self.home / "monitoring"

    @property
    def series(self) -> Path:
        return self.folder / "series.jsonl"

    @property
    def outbox(self) -> Path:
        return self.folder / "outbox"

    @property
    def state(self) -> Path:
        return self.folder / "state.json"


def nothing_expected(pair: str) -> Expected | None:
    """Of no pair is anything known: baselines come from first requests, releases go unchecked."""
    return None


def watch_server(
    url: str,
    home: Path,
    *,
    expected: Callable[[str], Expected | None] = nothing_expected,
    every_seconds: float = 2.0,  # between polls
    timeout_seconds: float = 10.0,  # for an answer to begin or go on
    headers: Mapping[str, str] | None = None,  # the admin key, where one is set
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], object] | None = None,  # None waits so that SIGTERM ends it at once
    stop: threading.Event | None = None,  # None ends on SIGTERM or SIGINT
) -> None:
    """Watch the server at `url` until told to stop; everything seen is stored before it returns.

    `expected` is asked about a pair at every poll in which it is seen, and returns what is known of
    it by then; it must be quick, and say None rather than raise. MonitorRunningError when another
    monitor has this home; StateError when its stored state cannot be believed; OSError when the
    home cannot be written.
    """
    paths = Paths(Path(home))
    paths.folder.mkdir(parents=True, exist_ok=True)
    with (
        _alone(paths.folder),
        _stopping(stop) as asked,
        httpx.Client(
            base_url=url,
            timeout=timeout_seconds,
            headers=dict(headers or {}),
            trust_env=not on_this_machine(url),  # a proxy cannot reach a loopback address
        ) as client,
    ):
        monitor = Monitor(Endpoint(client), paths, expected=expected, clock=clock)
        while not asked.is_set():
            monitor.poll()
            (sleep or asked.wait)(every_seconds)


class Monitor:
    """One server under watch. The verb is `poll`."""

    def __init__(
        self,
        endpoint: Endpoint,
        paths: Paths,
        *,
        expected: Callable[[str], Expected | None],
        clock: Callable[[], float],
    ) -> None:
        self._endpoint, self._paths, self._expected, self._clock = endpoint, paths, expected, clock
        sweep(paths.folder)
        self._state = load(paths.state)
        self._outbox = Outbox(paths.outbox)
        self._increases, self._looked = Increases(), 0.0
        self._put: set[str] = set()

    def poll(self) -> None:
        """Look once. Series, then state, then alarms: a kill in between repeats, never loses."""
        entries: list[Entry] = [*self._pair(), *self._exchanges(), *self._metrics()]
        if entries:
            append(self._paths.series, entries)
            save(self._state, self._paths.state)
        for watched in self._state.watched:
            for alarm in watched.active.values():
                if alarm.id not in self._put and self._outbox.put(alarm):
                    log.warning("%s: %s", alarm.cause, alarm.statement)
                self._put.add(alarm.id)

    def _pair(self) -> Iterator[Entry]:
        """What is served, and the swaps not yet marked."""
        served = self._endpoint.pair()
        if served is None:
            return
        if served.pair and served.drafter and served.release:
            known = self._known(served.pair, served.drafter)
            alarm = known.serving(served.release, at=self._clock())
            if alarm is not None:
                yield Mark(alarm.since, "alarm", alarm.cause, served.pair)
        for swap in served.swaps:
            if swap.at > self._state.swap_marked:
                self._state.swap_marked = swap.at
                yield Mark(swap.at, "swap", swap.pair, swap.pair)

    def _exchanges(self) -> Iterator[Entry]:
        """Requests that ended since the last poll, through the detectors."""
        fresh: dict[tuple[str, str], Watched] = {}
        now = self._clock()
        if self._state.cursor > now + AHEAD_SECONDS:  # as a monitor stored it that believed it
            self._state.cursor = now
        since = self._state.cursor or max(0.0, now - EARLIER_SECONDS)
        for logged, exchange in self._endpoint.exchanges(since):
            if logged <= self._state.cursor:
                continue
            self._state.cursor = logged
            key = (exchange.pair, exchange.drafter)
            if key not in fresh:
                fresh[key] = self._known(*key)
            alarm = fresh[key].update(exchange)
            if alarm is not None:
                yield Mark(alarm.since, "alarm", alarm.cause, alarm.pair)
        for watched in fresh.values():
            yield watched.point()

    def _metrics(self) -> Iterator[Entry]:
        """What the server's own counters did since the last look at them."""
        first = self._increases.last is None
        scrape = self._endpoint.metrics(at=self._clock())
        if scrape is None:
            return
        moved = self._increases.update(scrape)
        now = time.monotonic()  # the clock may go back or jump between two looks
        seconds, self._looked = now - self._looked, now
        if first or seconds <= 0:
            return
        for (pair, drafter), increase in moved.items():
            yield Throughput(
                scrape.at,
                pair,
                drafter,
                seconds,
                sum(increase.requests.values()),
                increase.requests.get("error", 0),
                increase.counts.acceptance,
                increase.counts.emitted / seconds,
            )

    def _known(self, pair: str, drafter: str) -> Watched:
        watched = self._state.of(pair, drafter)
        expected = self._expected(pair)
        if expected is not None:
            watched.expect(expected)
        return watched


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; the system lets go of it when the process ends, however it ends."""
    with (folder / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise MonitorRunningError(
                f"another monitor writes to {folder}, wanted it for this one: end that one first"
            ) from error
        yield


@contextmanager
def _stopping(stop: threading.Event | None) -> Iterator[threading.Event]:
    """An event set by SIGTERM or SIGINT, unless the caller brought one; handlers are put back."""
    if stop is not None:
        yield stop
        return
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
