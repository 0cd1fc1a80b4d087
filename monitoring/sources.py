"""All sources of a home, looked at once: requests and windows for the detectors, and faults.

Knows which replica is asked for what, and how far each has been read; decides nothing about pairs.
The built-in server's exchanges are what its detectors are fed with, its counters only the series;
of vLLM, and of a Prometheus server, the increases between two looks are all there is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

import httpx

from monitoring.adapters import ADAPTERS
from monitoring.answers import (
    AHEAD_SECONDS,
    AheadError,
    AnswerError,
    read_line,
    read_served,
    read_version,
)
from monitoring.facts import SourceFault
from monitoring.fetching import AT_ONCE, Fetcher, FetchError, on_this_machine
from monitoring.looked import Looked, Reached, Replica, window
from monitoring.pages import PageError
from monitoring.prometheus import QUERY, query, readings
from monitoring.settings import Source
from speculation.records import Exchange

log = logging.getLogger("paceline.monitoring")

EARLIER_SECONDS = 3600.0  # how far back a monitor without a past begins to read
SILENT_LOOKS, SILENT_SECONDS = 3, 60.0  # without an answer: a swap or a restart is shorter
AGAIN_SECONDS = 3600.0  # before the same kind of fault is logged again
VERSION_SECONDS = 3600.0  # before a replica is asked its version again


class Sources:
    """The verb is `look`. To be closed, as a context does."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        reached: Reached,
        *,
        timeout_seconds: float = 5.0,  # for one whole answer
        headers: Mapping[str, str] | None = None,  # of the built-in servers' admin side
        tokens: Mapping[str, str] | None = None,  # bearer tokens by kind of source
        clock: Callable[[], float] = time.time,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._sources, self.reached, self._clock = dict(sources), reached, clock
        self._seconds, self._transport = timeout_seconds, transport
        self._headers = {
            "builtin": dict(headers or {}),
            **{k: {"authorization": f"Bearer {t}"} for k, t in (tokens or {}).items()},
        }
        self._told: dict[tuple[str, str], float] = {}
        self._looked: dict[str, float] = {}  # monotonic seconds, of each replica's last page
        self._versions: dict[str, tuple[float, float | None, str]] = {}  # asked, start, answer
        self._runner = asyncio.Runner()
        self._clients: dict[bool, httpx.AsyncClient] = {}
        self._fetchers: dict[bool, Fetcher] = {}

    def __enter__(self) -> Sources:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._fetchers:
            self._runner.run(self._close())
        self._runner.close()

    async def _close(self) -> None:
        for client in self._clients.values():
            await client.aclose()
        self._clients, self._fetchers = {}, {}

    def look(self) -> Looked:
        """Ask every replica, all at once. Never raises for what they answer, or do not."""
        return self._runner.run(self._look())

    async def _look(self) -> Looked:
        looked = Looked()
        asked = [(source, url) for source in self._sources.values() for url in source.urls]
        kinds = {"builtin": self._builtin, "prometheus": self._prometheus}
        await asyncio.gather(
            *(kinds.get(source.kind, self._counters)(source, url, looked) for source, url in asked)
        )
        looked.exchanges.sort(key=_ended)
        return looked

    async def _builtin(self, source: Source, url: str, looked: Looked) -> None:
        """What is served, then the requests since, then the counters: a swap comes before them."""
        headers = self._headers["builtin"]
        body = await self._page(url, "/admin/pair", looked, headers)
        if body is not None:
            try:
                looked.served.append(read_served(body, now=self._clock()))
            except AnswerError as error:
                self._fault(looked, url, "source_faulty", f"/admin/pair: {error}")
        await self._exchanges(url, looked, headers)
        await self._counters(source, url, looked)

    async def _exchanges(self, url: str, looked: Looked, headers: Mapping[str, str]) -> None:
        replica, now = self._replica(url), self._clock()
        if replica.cursor > now + AHEAD_SECONDS:  # as a monitor stored it that believed it
            replica.cursor = now
        since = replica.cursor or max(0.0, now - EARLIER_SECONDS)
        try:
            lines = await self._fetcher(url).lines(
                url.rstrip("/") + "/admin/exchanges", headers=headers, params={"since": repr(since)}
            )
        except FetchError as error:
            self._missed(looked, url, error)
            return
        for line in lines:
            try:
                logged, exchange = read_line(line, now=now)
            except AheadError as error:
                self._fault(looked, url, "clock_ahead", str(error))
            except AnswerError as error:
                # Not the line itself, which may hold what a user wrote.
                self._fault(looked, url, "source_faulty", f"a request passed over: {error}")
            else:
                if logged > replica.cursor:
                    replica.cursor = logged
                    looked.exchanges.append(exchange)

    async def _counters(self, source: Source, url: str, looked: Looked) -> None:
        """A page of metrics, and what it shows to have happened since the last one."""
        headers = self._headers.get(source.kind, {})
        body = await self._page(url, "/metrics", looked, headers)
        if body is None:
            return
        now = time.monotonic()  # the clock may jump between two looks
        seconds = now - self._looked.get(url, now)
        try:
            read = ADAPTERS[source.kind].page(body, source, url)
        except PageError as error:
            self._fault(looked, url, "source_faulty", f"/metrics: {error}")
            return
        self._looked[url] = now
        if version := await self._version(url, source, read.started, headers):
            named = [replace(one, engine=f"{one.engine} {version}") for one in read.readings]
            read = replace(read, readings=tuple(named))
        looked.gauges += read.gauges
        increases, faults = self.reached.increases.update(
            url, read, at=self._clock(), seconds=seconds
        )
        looked.increases += increases
        looked.faults += faults
        if source.kind != "builtin":
            looked.exchanges += [window(one, source) for one in increases if one.counts.judged]

    async def _version(
        self, url: str, source: Source, started: float | None, headers: Mapping[str, str]
    ) -> str:
        """Asked once a process, where its start is told, and once an hour; empty where none is."""
        path, now = ADAPTERS[source.kind].version, time.monotonic()
        if not path:
            return ""
        known = self._versions.get(url)
        if known is None or known[1] != started or now - known[0] >= VERSION_SECONDS:
            version = "" if known is None else known[2]
            with suppress(FetchError, AnswerError):
                page = await self._fetcher(url).page(url.rstrip("/") + path, headers=headers)
                version = read_version(page)
            known = self._versions[url] = (now, started, version)
        return known[2]

    async def _prometheus(self, source: Source, url: str, looked: Looked) -> None:
        replica, now = self._replica(url), self._clock()
        since = replica.cursor or now - EARLIER_SECONDS
        form = query(source, since=since, now=now)
        try:
            body = await self._fetcher(url).page(
                url.rstrip("/") + QUERY, headers=self._headers.get("prometheus"), form=form
            )
        except FetchError as error:
            self._missed(looked, url, error)
            return
        self._answered(url)
        try:
            for instance, at, read in readings(body, source, since=since):
                replica.cursor = max(replica.cursor, at)
                increases, faults = self.reached.increases.update(f"{url} {instance}", read, at=at)
                looked.increases += increases
                looked.faults += faults
                looked.exchanges += [window(one, source) for one in increases if one.counts.judged]
        except PageError as error:
            self._fault(looked, url, "source_faulty", str(error))

    async def _page(
        self, url: str, path: str, looked: Looked, headers: Mapping[str, str]
    ) -> bytes | None:
        try:
            body = await self._fetcher(url).page(url.rstrip("/") + path, headers=headers)
        except FetchError as error:
            self._missed(looked, url, error, path)
            return None
        self._answered(url)
        return body

    def _missed(self, looked: Looked, url: str, error: FetchError, path: str = "") -> None:
        if not error.silent:
            self._fault(looked, url, "source_faulty", f"{path}: {error}".lstrip(": "))
            return
        replica, now = self._replica(url), self._clock()
        if replica.silent_since is None or now < replica.silent_since:
            replica.silent_since, replica.missed = now, 0
        replica.missed += 1
        self._log(url, "silent", f"no answer from {url} ({error}), asking again")
        silent = now - replica.silent_since
        if replica.missed >= SILENT_LOOKS and silent >= SILENT_SECONDS:
            what = f"{error}, for {silent:.0f} s now"
            fault = SourceFault(url, "source_silent", replica.silent_since, what)
            if fault.source not in {f.source for f in looked.faults if f.kind == fault.kind}:
                looked.faults.append(fault)

    def _answered(self, url: str) -> None:
        replica = self._replica(url)
        if replica.silent_since is not None:
            log.info("%s answered again", url)
        replica.silent_since, replica.missed = None, 0

    def _replica(self, url: str) -> Replica:
        return self.reached.replicas.setdefault(url, Replica())

    def _fault(self, looked: Looked, url: str, kind: str, what: str) -> None:
        """One of a kind and source is enough for a look."""
        if not any((one.source, one.kind) == (url, kind) for one in looked.faults):
            looked.faults.append(SourceFault(url, kind, self._clock(), what))

    def _log(self, source: str, kind: str, what: str) -> None:
        """By kind and not by its words, and seldom: a source may alternate."""
        now = time.monotonic()
        if now - self._told.get((source, kind), -AGAIN_SECONDS) >= AGAIN_SECONDS:
            log.warning("%s", what)
            self._told[source, kind] = now

    def _fetcher(self, url: str) -> Fetcher:
        """One client for what is on this machine, which no proxy reaches, and one for the rest."""
        here = on_this_machine(url)
        if here not in self._fetchers:
            self._clients[here] = httpx.AsyncClient(
                timeout=self._seconds,
                trust_env=not here,
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
                transport=self._transport,
            )
            gate = asyncio.Semaphore(AT_ONCE)
            self._fetchers[here] = Fetcher(self._clients[here], self._seconds, gate)
        return self._fetchers[here]


def _ended(exchange: Exchange) -> float:
    spans = exchange.queue_seconds + exchange.prefill_seconds + exchange.decode_seconds
    return exchange.started + spans
