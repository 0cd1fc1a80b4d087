"""A server from its first moment to its last: listens, loads, serves, drains, ends.

Knows uvicorn, signals and the order of things; knows nothing of requests. It listens before it has
loaded, so that whoever watches sees "not ready" and not "gone".
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable
from functools import partial
from types import FrameType

import torch
import uvicorn
from prometheus_client import CollectorRegistry

from monitoring.exchanges import ExchangeLog
from monitoring.outbox import Outbox
from registry.remote import champion, download
from serving.app import create_app
from serving.connections import bounded
from serving.edge import Edge, relay, unheard
from serving.inflight import InFlight
from serving.metrics import Metrics
from serving.retention import retained
from serving.service import Service
from serving.settings import ServeSettings
from serving.swap import Follower

log = logging.getLogger("paceline.serving")

CLOSE_SECONDS = 5  # for connections to take what was sent, after the grace is over
KEEP_ALIVE_SECONDS = 30
LOOK_SECONDS = 0.02  # between looks at what clients have taken
HURRY_SECONDS = 1.0  # after a second signal, for whoever waits to be told that nothing comes


class Running(uvicorn.Server):
    """uvicorn with our way to end: requests first, then connections."""

    def __init__(
        self,
        settings: ServeSettings,
        listening: socket.socket,
        registry: Callable[[], str] | None = None,  # where it is now; None: where the settings say
        *,
        admin: socket.socket | None = None,  # listens for the admin side; None: `listening` does
    ) -> None:
        self.settings, self.listening, self.admin = settings, listening, admin
        self._registry = registry
        self.exit_code = 0
        self.service: Service | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loading: asyncio.Future[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._hurried = False
        self._failed: BaseException | None = None

    async def main(self) -> int:
        """Serve until a signal or a fatal fault; the exit code. Raises what loading raised."""
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(unheard)
        relay("uvicorn.error")
        settings = self.settings
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        exchanges = ExchangeLog(
            settings.home / "serving" / "exchanges",
            keep_bytes=settings.keep_exchanges_bytes,
            keep_seconds=settings.keep_exchanges_seconds,
        )
        outbox = None if settings.trial else _outbox(settings)
        service = Service(settings, Metrics(CollectorRegistry()), exchanges, outbox)
        self.service = service
        port = None if self.admin is None else int(self.admin.getsockname()[1])
        app = create_app(service, admin_port=port, crowded=self._crowded)
        self._replies = InFlight(Edge(app))
        config = uvicorn.Config(
            self._replies,
            http=bounded(settings.connections),
            ws="none",
            log_config=None,
            access_log=False,  # counts say as much, and paths of requests are their clients' own
            lifespan="off",
            # Else the environment says who may write where a request came from, and the admin side
            # believes that where no key is set.
            forwarded_allow_ips=["127.0.0.1", "::1"],
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=CLOSE_SECONDS,
            server_header=False,
        )
        super().__init__(config)
        self._loading = asyncio.ensure_future(self._load(service, outbox))
        keeping = asyncio.ensure_future(retained(exchanges))
        try:
            await self.serve(sockets=[self.listening, *filter(None, [self.admin])])
        finally:
            self._loading.cancel()
            keeping.cancel()
            await asyncio.gather(self._loading, keeping, return_exceptions=True)
            service.close()
        if self._failed is not None:
            raise self._failed
        return self.exit_code

    def _crowded(self) -> bool:
        """Whether more connections are open than are meant to be."""
        return len(self.server_state.connections) > self.settings.connections

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal drains, the second ends, a third waits for nothing. Safe to call from
        any thread."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._end, sig)

    def _end(self, sig: int) -> None:
        interrupted = sig == signal.SIGINT
        if self._ending is None:
            self.exit_code = 130 if interrupted else 0
            self._ending = asyncio.ensure_future(self._drain())
        elif not self._hurried:
            self._hurried, self.exit_code = True, 130 if interrupted else 143
            self._ending.cancel()
            self._ending = asyncio.ensure_future(self._hurry())
        else:
            self.should_exit = self.force_exit = True

    async def _drain(self) -> None:
        """Requests end first, then what was said to their clients is sent."""
        assert self.service is not None
        assert self._loading is not None
        assert self._loop is not None
        log.info("draining: %d requests run", self.service.worker.running)
        until = self._loop.time() + self.settings.grace_seconds
        self._loading.cancel()  # no swap begins now, and one that had begun is let go
        await self.service.drain()
        late = await self._replies.left(until - self._loop.time())
        while (unread := self._unread()) and self._loop.time() < until:
            await asyncio.sleep(LOOK_SECONDS)
        if late + unread:
            log.warning(
                "%d answers had not reached their clients when the time of grace was over",
                late + unread,
            )
        self.should_exit = True

    async def _hurry(self) -> None:
        """Whoever has no answer yet gets none, and is told so."""
        assert self.service is not None
        log.warning("ending now: %d requests are cut short", self.service.worker.running)
        self.service.cut_short()
        await self._replies.left(HURRY_SECONDS)
        self.should_exit = self.force_exit = True

    def _unread(self) -> int:
        """Connections with bytes of an answer that their clients have yet to take."""
        transports = [connection.transport for connection in self.server_state.connections]
        return sum(transport.get_write_buffer_size() > 0 for transport in transports)

    async def _load(self, service: Service, outbox: Outbox | None) -> None:
        try:
            if self.settings.pairing is None:
                await service.load()
                told = service.describe()
                log.info(
                    "ready: pair %s%s", told["pair"], "" if told["verified"] else " (unverified)"
                )
            else:
                await self._follower(service, outbox).run()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # a task's would be lost; `main` raises it after the end
            self._failed = error
            self.should_exit = True

    def _registry_url(self) -> str:
        if self._registry is not None:
            return self._registry()
        assert self.settings.registry is not None
        return self.settings.registry

    def _follower(self, service: Service, outbox: Outbox | None) -> Follower:
        pairing, token = self.settings.pairing, self.settings.registry_token
        assert pairing is not None
        return Follower(
            service,
            champion=lambda: champion(self._registry_url(), pairing, token=token),
            download=partial(download, token=token),
            outbox=outbox,
        )


def _outbox(settings: ServeSettings) -> Outbox | None:
    """Where alarms go. A disk that takes nothing must not keep a server from its clients."""
    try:
        return Outbox(settings.home / "monitoring" / "outbox")
    except OSError as error:
        log.error("no alarm can be written down: %s", error)
        return None
