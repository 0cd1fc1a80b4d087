"""Runs a real server in a thread of the test's process, over real sockets."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx

from serving.loading import Loaded
from serving.main import listen
from serving.running import Running
from serving.settings import ServeSettings
from speculation.sequence import Event


class Served:
    """A server that listens; `client` speaks to it."""

    def __init__(self, settings: ServeSettings) -> None:
        listening = listen(settings.host, 0)
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self.client = httpx.Client(base_url=self.url, timeout=30.0, trust_env=False)
        admin = None if settings.admin_port is None else listen(settings.host, 0)
        self.admin_url = self.url
        if admin is not None:
            self.admin_url = f"http://127.0.0.1:{admin.getsockname()[1]}"
        self.running = Running(settings, listening, admin=admin)
        self.exit_code: int | None = None
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name="served")
        self.thread.start()

    def _run(self) -> None:
        try:
            self.exit_code = asyncio.run(self.running.main())
        except BaseException as error:
            self.error = error

    def ready(self, *, timeout_seconds: float = 20.0) -> None:
        """Wait until it serves."""
        self.until(lambda: self.client.get("/health/ready").status_code == 200, timeout_seconds)

    def until(self, holds: Callable[[], bool], timeout_seconds: float = 20.0) -> None:
        """Wait until `holds()` is true. AssertionError when the time is over."""
        end = time.monotonic() + timeout_seconds
        while not holds():
            if self.error is not None:
                raise self.error
            assert time.monotonic() < end, f"waited {timeout_seconds} s in vain"
            time.sleep(0.02)

    def slow(self, seconds: float) -> None:
        """Let every step of the engine take this much longer."""
        loaded = self.loaded
        step = loaded.engine.step

        def slowly() -> list[Event]:
            time.sleep(seconds)
            return step()

        loaded.engine.step = slowly  # type: ignore[method-assign]  # a test's brake

    @property
    def loaded(self) -> Loaded:
        """What new requests take."""
        assert self.running.service is not None
        loaded = self.running.service.worker.current
        assert loaded is not None
        return loaded

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.running.handle_exit(number, None)

    def close(self) -> None:
        if self.thread.is_alive():
            self.signal()
            self.signal()
        self.thread.join(20)
        self.client.close()
        assert not self.thread.is_alive()


@contextmanager
def serving(settings: ServeSettings, *, wait: bool = True) -> Iterator[Served]:
    """A server that is ready, and gone at the end."""
    server = Served(settings)
    try:
        if wait:
            server.ready()
        yield server
    finally:
        server.close()
