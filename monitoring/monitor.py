"""The loop that watches the servers of a home: looks, writes the series, tells of alarms.

Knows the order of things and the monitoring folder of a home; decides nothing itself (`watched.py`,
`diagnosis.py` and `alarms.py` do) and delivers nothing (`flows` does).
"""

from __future__ import annotations

import fcntl
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from monitoring.alarms import Alarms
from monitoring.answers import Served
from monitoring.diagnosis import diagnose, diagnose_source
from monitoring.exporting import Exporter
from monitoring.facts import Finding, SourceFault
from monitoring.looked import Looked
from monitoring.notices import Notice, Phase
from monitoring.outbox import Outbox
from monitoring.series import Entry, Mark, append
from monitoring.settings import Monitoring, Source
from monitoring.showing import gauges, shown, throughputs
from monitoring.sources import Sources, log
from monitoring.state import load, save
from monitoring.thinning import thin
from monitoring.watched import Expected, Watched
from monitoring.whole import sweep

THIN_EVERY_SECONDS = 3600.0
SAVE_EVERY_SECONDS = 10.0  # at most: the state of a thousand replicas is a megabyte or two
UNKNOWN_SECONDS, UNKNOWN_REQUESTS = 600.0, 50  # of a pair that nobody knows, before it is told


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
    url: str | None,
    home: Path,
    *,
    expected: Callable[[str], Expected | None] = nothing_expected,
    settings: Monitoring | None = None,
    every_seconds: float = 2.0,  # between looks
    timeout_seconds: float = 10.0,  # for one whole answer
    headers: Mapping[str, str] | None = None,  # the admin key, where one is set
    tokens: Mapping[str, str] | None = None,  # bearer tokens by kind of source
    code_version: str = "",
    exporter: Exporter | None = None,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], object] | None = None,  # None waits so that SIGTERM ends it at once
    stop: threading.Event | None = None,  # None ends on SIGTERM or SIGINT
) -> None:
    """Watch until told to stop; everything seen is stored before it returns.

    What is watched is the server at `url` and the sources that the settings name. `expected` is
    asked about a pair at every look in which it is seen, and returns what is known of it by then;
    it must be quick, and say None rather than raise. MonitorRunningError when another monitor has
    this home; StateError when its stored state cannot be believed; OSError when the home cannot be
    written.
    """
    found = settings or Monitoring()
    named = dict(found.sources) if url is None else {"": Source(urls=(url,)), **found.sources}
    paths = Paths(Path(home))
    paths.folder.mkdir(parents=True, exist_ok=True)
    with _alone(paths.folder), _stopping(stop) as asked:
        monitor = Monitor(
            named,
            paths,
            expected=expected,
            settings=found,
            timeout_seconds=timeout_seconds,
            headers=headers,
            tokens=tokens,
            code_version=code_version,
            exporter=exporter,
            clock=clock,
        )
        with monitor:
            while not asked.is_set():
                monitor.poll()
                (sleep or asked.wait)(every_seconds)


class Monitor:
    """The servers of a home under watch. The verb is `poll`; `close` stores what is not yet."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        paths: Paths,
        *,
        expected: Callable[[str], Expected | None] = nothing_expected,
        settings: Monitoring | None = None,
        timeout_seconds: float = 10.0,
        headers: Mapping[str, str] | None = None,
        tokens: Mapping[str, str] | None = None,
        code_version: str = "",
        exporter: Exporter | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._paths, self._expected, self._clock = paths, expected, clock
        self._exporter, settings = exporter, settings or Monitoring()
        paths.folder.mkdir(parents=True, exist_ok=True)
        sweep(paths.folder)
        self._state = load(paths.state)
        self._alarms = Alarms(
            settings.cooldown_minutes * 60, settings.renotify_hours * 3600, code_version
        )
        urls = [url for source in sources.values() for url in source.urls]
        self._state.go_on(self._alarms, urls)
        self._outbox = Outbox(paths.outbox)
        self._budget = settings.floor_budget
        self._sources = Sources(
            sources,
            self._state.reached,
            timeout_seconds=timeout_seconds,
            headers=headers,
            tokens=tokens,
            clock=clock,
        )
        self._thinned = -THIN_EVERY_SECONDS
        self._saved, self._unsaved = -SAVE_EVERY_SECONDS, False
        asked = expected is not nothing_expected
        self._pairings = {one.pairing for one in sources.values() if one.pairing and asked}
        self._named = {source.pair for source in sources.values() if source.pair}
        self._strangers: dict[str, tuple[float, int]] = {}  # pairs nobody knows: since, requests

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._sources.close()
        if self._unsaved:
            self._save()

    def poll(self) -> None:
        """Look once. Series, then alarms, then state: a kill in between repeats, never loses."""
        looked = self._sources.look()
        entries: list[Entry] = [
            *self._pairs(looked.served),
            *self._requests(looked),
            *throughputs(looked.increases),
            *gauges(looked.gauges, at=self._clock()),
        ]
        notices = self._tell(looked)
        entries += [
            Mark(one.alarm.since, "alarm", one.alarm.cause, one.alarm.pair)
            for one in notices
            if one.phase is Phase.RAISED
        ]
        if entries:
            append(self._paths.series, entries)
        for notice in notices:
            if self._outbox.put(notice):
                log.warning("%s %s: %s", notice.alarm.cause, notice.phase, notice.alarm.statement)
        self._unsaved = self._unsaved or bool(entries or notices)
        due = time.monotonic() - self._saved >= SAVE_EVERY_SECONDS
        if notices or (self._unsaved and due):
            self._save()
        if time.monotonic() - self._thinned >= THIN_EVERY_SECONDS:
            self._thinned = time.monotonic()
            thin(self._paths.series, now=self._clock())
        if self._exporter is not None:
            now = shown(looked, self._state, self._alarms, at=self._clock())
            self._exporter.show(now, notices)

    def _pairs(self, served: Sequence[Served]) -> Iterator[Entry]:
        """What is served, and the swaps not yet marked."""
        marked = self._state.swap_marked
        for one in served:
            if one.pair and one.drafter and one.release:
                known = self._known(one.pair, one.drafter)
                known.looked(running=one.running, slots=one.slots, parts=one.parts)
                known.serving(one.release, at=self._clock())
            for swap in one.swaps:
                if swap.at > marked:
                    self._state.swap_marked = max(self._state.swap_marked, swap.at)
                    yield Mark(swap.at, "swap", swap.pair, swap.pair)

    def _requests(self, looked: Looked) -> Iterator[Entry]:
        """Requests that ended since the last look, through the detectors."""
        fresh: dict[tuple[str, str], Watched] = {}
        for exchange in looked.exchanges:
            key = (exchange.pair, exchange.drafter)
            if key not in fresh:
                fresh[key] = self._known(*key)
            fresh[key].update(exchange)
        for watched in fresh.values():
            yield watched.point()

    def _tell(self, looked: Looked) -> list[Notice]:
        """What holds now, and what of it is to be told."""
        at = self._clock()
        findings: list[Finding] = []
        for watched in self._state.watched:
            if watched.alarming:
                findings += diagnose(watched.facts(at))
        faults = [*looked.faults, *self._unknown(at)]
        findings += [diagnose_source(fault) for fault in faults]
        seen = {f"{one.pair}|{one.drafter}": one.seen for one in self._state.watched}
        served = {one.pair for one in looked.served} | {one.pair for one in looked.exchanges}
        if served:  # sources that tell of no pair are taken to serve the one they are named for
            served |= self._named
        notices = self._alarms.update(findings, at=at, seen=seen, served=served or None)
        self._state.alarms = self._alarms.to_json()
        return notices

    def _unknown(self, at: float) -> Iterator[SourceFault]:
        """Pairs that a pairing's servers serve and its registry does not know."""
        for pair, (since, requests) in self._strangers.items():
            if at - since >= UNKNOWN_SECONDS and requests >= UNKNOWN_REQUESTS:
                what = f"{requests} requests were served by pair {pair}, which is no champion's"
                yield SourceFault(pair, "unknown_pair", since, what, pair)

    def _known(self, pair: str, drafter: str) -> Watched:
        watched = self._state.of(pair, drafter)
        watched.judges.burn.budget = self._budget
        expected = self._expected(pair)
        if expected is not None:
            watched.expect(expected)
            self._strangers.pop(pair, None)
        elif self._pairings:
            since, _ = self._strangers.get(pair, (self._clock(), 0))
            self._strangers[pair] = (since, watched.seen)
        return watched

    def _save(self) -> None:
        save(self._state, self._paths.state)
        self._saved, self._unsaved = time.monotonic(), False


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
