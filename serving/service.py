"""One server's state, and what can be done to it: take a pair, admit a request, drain.

Sits between the routes, which know HTTP, and the worker, which knows engines. What its parts do is
theirs: `admission` lets requests in, `probing` tries pairs, `accounting` counts, `faults` tells
what drafts do wrong.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from typing import Any

from monitoring.exchanges import ExchangeLog
from monitoring.outbox import Outbox
from serving.accounting import Accounting
from serving.admission import Admission
from serving.arms import static_arm, trial_arms
from serving.bodies import Ask
from serving.faults import Faults
from serving.loading import Host, Loaded
from serving.metrics import Metrics
from serving.passing import in_passing_thread
from serving.probing import heal, warm
from serving.settings import ServeSettings
from serving.tickets import Group
from serving.worker import STUCK_SECONDS, Worker

log = logging.getLogger("paceline.serving")

ENGINE = "builtin"
PARTS = ("weights", "adapter", "tokenizer", "chat_template", "generation", "configuration")
NOTHING = "no pair is loaded yet"
LOADING_RETRY_SECONDS = 5
FAILING_RETRY_SECONDS = 5
LOST_SECONDS = 5.0  # for requests that were cancelled to end; an engine that hangs never ends them


class UnavailableError(Exception):
    """The server takes no requests now; come back in `retry_seconds`."""

    def __init__(self, why: str, retry_seconds: int) -> None:
        super().__init__(why)
        self.retry_seconds = retry_seconds


class Service:
    """Made inside the event loop that it serves in."""

    def __init__(
        self,
        settings: ServeSettings,
        metrics: Metrics,
        exchanges: ExchangeLog,
        outbox: Outbox | None = None,  # for alarms; None: nobody is to be told
    ) -> None:
        self.settings, self.metrics, self.exchanges = settings, metrics, exchanges
        self.outbox = outbox
        self.faults = Faults(metrics, outbox)
        self.worker = Worker(
            queue_tokens=settings.queue_tokens,
            ended=lambda ticket, last: self._accounting.ended(ticket, last),
            failing=self._failing,
            on_fault=self.faults.told,
            stuck_seconds=max(STUCK_SECONDS, settings.probe_seconds),
        )
        self.started = time.time()
        self.version = _version()
        metrics.version, metrics.started = self.version, self.started
        self._accounting = Accounting(
            metrics,
            exchanges,
            capture=settings.capture,
            clock=self.worker.clock,
            engine=f"{ENGINE} {self.version}".strip(),
            running=lambda: self.worker.running,
        )
        self._admission = Admission(settings, self.worker, self._available)
        self.draining = False
        self.ending = False  # draining is for good: the process was told to end
        self.hurry: Callable[..., None] | None = None  # of a following server: an operator asks
        self.nudge: Callable[[], None] | None = None  # the same, and what was refused stays so
        self.nothing = NOTHING  # why, while nothing is served; a follower may know better
        self._following: Callable[[], dict[str, Any]] | None = None
        self._held: tuple[str, int] | None = None  # why nothing is taken for now, come back in
        self._healing: asyncio.Task[None] | None = None
        self._ill: Callable[[], Loaded | None] = lambda: None  # which pair that is for

    @property
    def unlogged(self) -> int:
        """Exchanges that the log could not take."""
        return self._accounting.unlogged

    async def load(self) -> None:
        """Load a static or a trial server's target and drafts, and serve them.

        Raises ValueError subclasses (FolderError, ModelFolderError, DraftError, …) for what the
        settings name wrongly, ProbeError for a pair that does not answer.
        """
        target, settings = self.settings.target, self.settings
        assert target is not None

        def prepare() -> Loaded:
            host = Host.load(target, settings)
            if settings.trial:
                return Loaded.prepare(host, trial_arms(host, settings.arms), settings)
            arm = static_arm(host, settings.draft)
            return Loaded.prepare(host, {arm.name: arm}, settings)

        loaded = await in_passing_thread(prepare)
        await self.warm(loaded)
        self.worker.switch(loaded)

    async def warm(self, loaded: Loaded) -> None:
        """Start `loaded` beside what is served and let it answer. Raises ProbeError."""
        with self.faults.trying(loaded):
            await warm(self.worker, loaded, seconds=self.settings.probe_seconds)

    def follow(
        self,
        *,
        hurry: Callable[..., None],  # with reload=True, what is served is loaded anew
        nudge: Callable[[], None],
        describe: Callable[[], dict[str, Any]],
    ) -> None:
        """A follower says how it is asked to look, and what it has to tell."""
        self.hurry, self.nudge, self._following = hurry, nudge, describe

    def describe(self) -> dict[str, Any]:
        """What is served, for the admin side and for monitors."""
        loaded, settings = self.worker.current, self.settings
        told: dict[str, Any] = {
            "engine": ENGINE,
            "engine_version": self.version,
            "started": self.started,
            "model": settings.model,
            "mode": "following" if settings.pairing else "trial" if settings.trial else "static",
            "ready": self.unready() is None,
            "why": self.unready(),
            "running": self.worker.running,
            "swaps": [],
        }
        if loaded is not None:
            told |= {
                "pair": loaded.pair,
                "version": loaded.version,
                "verified": loaded.own.verified,
                "release": loaded.host.release.digest,
                "parts": _parts(loaded.host.release),
                "target": str(loaded.host.folder),
                "drafter": loaded.default.name,
                "draft_len": loaded.draft_len,
                "adaptive": loaded.adaptive,
                "max_slots": loaded.slots,
                "max_context": loaded.max_len,
                **loaded.host.computing(),
                "arms": {
                    name: {
                        "pair": arm.pair,
                        "kind": arm.kind,
                        "draft": str(arm.draft),
                        "context": arm.context,
                        "notes": list(arm.notes),
                    }
                    for name, arm in loaded.arms.items()
                },
                "adapters": dict(loaded.adapters),
                "drafters": self.faults.describe(loaded),
            }
        return told if self._following is None else told | self._following()

    def unready(self) -> str | None:
        """Why the server takes no requests now; None when it does."""
        unavailable = self._unavailable()
        return None if unavailable is None else str(unavailable)

    @contextmanager
    def hold(self, why: str, retry_seconds: int) -> Iterator[None]:
        """Take no requests meanwhile; those that run go on."""
        before, self._held = self._held, (why, retry_seconds)
        try:
            yield
        finally:
            self._held = before

    def expect(self, body_bytes: int) -> None:
        """Turn a request away whose body of so many bytes need not be read for it.

        Raises UnavailableError, QueueFullError.
        """
        self._admission.expect(body_bytes)

    async def admit(self, ask: Ask, *, arrived: float | None = None, tenant: str = "") -> Group:
        """Queue a request that came when the worker's clock said `arrived`; None: now.

        Raises UnavailableError, BadRequest, QueueFullError, DeadlineError.
        """
        arrived = self.worker.clock() if arrived is None else arrived
        return await self._admission.admit(ask, arrived=arrived, tenant=tenant)

    def refused(self, outcome: str) -> None:
        """Count a request that was not admitted, under what is served now. Whoever refused it says
        so, once."""
        self._accounting.refused(self.worker.current, outcome)

    async def drain(self) -> None:
        """Take no more requests, and wait for those that run, at most the time of grace."""
        self.draining = self.ending = True
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.grace_seconds):
                await self.worker.drained()
                return
        log.warning("%d requests did not end in time", self.worker.running)
        self.cut_short()
        try:
            async with asyncio.timeout(LOST_SECONDS):
                await self.worker.drained()
        except TimeoutError:
            log.error("%d requests are lost: the engine does not end them", self.worker.running)

    def cut_short(self) -> None:
        """Take no more requests, and end those that run at their next step."""
        self.draining = self.ending = True
        self.worker.cancel_all()

    def close(self) -> None:
        """End the threads and the log."""
        if self._healing is not None:
            self._healing.cancel()
        self.worker.stop()
        self._admission.close()
        self.exchanges.close()

    def _unavailable(self) -> UnavailableError | None:
        if self.draining:
            return UnavailableError(
                "the server is draining", max(int(self.settings.grace_seconds), 1)
            )
        if (why := self.worker.dead or self.worker.failing) is not None:
            return UnavailableError(f"the engine has failed: {why}", FAILING_RETRY_SECONDS)
        if self._held is not None:
            return UnavailableError(*self._held)
        if self.worker.current is None:
            return UnavailableError(self.nothing, LOADING_RETRY_SECONDS)
        return None

    def _available(self) -> Loaded:
        if (unavailable := self._unavailable()) is not None:
            raise unavailable
        assert self.worker.current is not None
        return self.worker.current

    def _failing(self, loaded: Loaded) -> None:
        """A pair has stopped answering. One that is not served any more is not missed."""
        if loaded is not self.worker.current:
            return
        if self._healing is not None and not self._healing.done():
            if self._ill() is loaded:
                return
            self._healing.cancel()  # that of the pair before: nobody waits for it any more
        self._ill = weakref.ref(loaded)
        self._healing = asyncio.ensure_future(
            heal(self.worker, loaded, seconds=self.settings.probe_seconds)
        )


def _version() -> str:
    """Of this server; empty where it is not installed."""
    try:
        return metadata.version("paceline")
    except metadata.PackageNotFoundError:
        return ""


def _parts(release: object) -> dict[str, str]:
    """The digests of a release's parts, each apart."""
    told = {name: getattr(release, name, None) for name in PARTS}
    return {name: value for name, value in told.items() if isinstance(value, str)}
