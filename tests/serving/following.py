"""A follower with its service in the test's own event loop: each look is asked for, none is awaited
by the clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import httpx
from prometheus_client import CollectorRegistry

from monitoring.exchanges import ExchangeLog
from monitoring.outbox import Outbox
from registry.remote import RemotePair, champion, download
from serving.loading import Loaded
from serving.metrics import Metrics
from serving.service import Service
from serving.settings import ServeSettings
from serving.swap import Follower
from speculation.records import Alarm
from speculation.sequence import Request
from tests.serving.registry_stand_in import PAIRING, StandIn

ROOM = 2**60  # bytes that are free


class Scene:
    """One server's life between a start and an end, without its sockets."""

    def __init__(self, service: Service, registry: StandIn, outbox: Outbox) -> None:
        self.service, self.registry, self.outbox = service, registry, outbox
        self.now, self.free = 1000.0, ROOM
        self.forced: dict[str, Any] = {}  # what the registry says otherwise of its champion
        self.download: Callable[[RemotePair, Path, Callable[[], bool]], Path] = download
        self.numbers = count()
        self.client = httpx.Client(base_url=registry.url, trust_env=False)
        self.follower = Follower(
            service,
            champion=self._champion,
            download=lambda *given: self.download(*given),
            outbox=outbox,
            clock=lambda: self.now,
            free=lambda device: self.free,
        )

    def _champion(self) -> RemotePair | None:
        found = champion(self.registry.url, PAIRING, client=self.client)
        return None if found is None else replace(found, **self.forced)

    async def look(self, *, after_seconds: float = 0.0) -> str | None:
        """One look; the pair that is served then."""
        self.now += after_seconds
        await self.follower.look()
        return self.pair

    @property
    def loaded(self) -> Loaded:
        current = self.service.worker.current
        assert current is not None
        return current

    @property
    def pair(self) -> str | None:
        current = self.service.worker.current
        return None if current is None else current.pair

    @property
    def failed(self) -> list[str]:
        """Why swaps failed, as the admin side tells it."""
        return [one["why"] for one in self.follower.history if one["outcome"] == "failed"]

    @property
    def alarms(self) -> list[Alarm]:
        return self.outbox.pending()

    @property
    def written(self) -> list[tuple[str, str]]:
        return [(step.step, step.pair) for step in self.follower.journal.steps]

    async def answer(self, loaded: Loaded | None = None, *, tokens: int = 8) -> tuple[int, ...]:
        """A request's tokens. AssertionError for one that does not end well."""
        request = Request(f"r-{next(self.numbers)}", (9, 8, 7), tokens)
        group = self.service.worker.submit([request], loaded or self.loaded)
        ids: list[int] = []
        while True:
            event = (await group.next())[1]
            ids += event.token_ids
            if event.outcome is not None:
                assert event.outcome == "length"
                return tuple(ids)


def lived(
    home: Path,
    registry: StandIn,
    life: Callable[[Scene], Any],
    /,
    *,
    seconds: float = 60.0,
    **settings: Any,
) -> None:
    """Start a server on `home`, let `life` happen, end it."""

    async def run() -> None:
        async with scene(home, registry, **settings) as made:
            await asyncio.wait_for(life(made), seconds)

    asyncio.run(run())


@asynccontextmanager
async def scene(home: Path, registry: StandIn, **more: Any) -> AsyncIterator[Scene]:
    given = {"max_slots": 2, "max_context": 128, "poll_seconds": 1.0, "adaptive": False} | more
    settings = ServeSettings(home=home, pairing=PAIRING, registry=registry.url, **given)
    log = ExchangeLog(home / "serving" / "exchanges")
    service = Service(settings, Metrics(CollectorRegistry()), log)
    made = Scene(service, registry, Outbox(home / "outbox"))
    try:
        yield made
    finally:
        made.client.close()
        service.close()
