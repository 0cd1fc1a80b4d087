"""One client's connection, which may not be held without asking anything, nor without reading.

uvicorn's own with one more clock: from the moment that a connection stands open for a request until
the request's headers are all there. What is sent has to be taken in time as well, for a client that
reads no more would hold what waits for it for ever. And with an end to how many there may be: the
application turns requests away politely long before, but a connection costs a file whether it asks
or not. Who is answered before the whole request has come is heard no further. Knows nothing of what
is asked.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from contextlib import suppress
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from serving.lingering import Lingering
from serving.strict import Strict

HEADER_SECONDS = 30.0  # for the headers of a request
HEADER_BYTES = 16 * 1024  # of all of them together, as uvicorn has it
UNREAD_SECONDS = 60.0  # that a client may read nothing of what waits for it
SPARE_FILES = 256  # beside connections: weights, logs, sockets of our own


class Connection(H11Protocol):
    """Closes when nobody has asked anything for as long, or at once when there are too many."""

    most = 2**31  # open at once
    _waiting: asyncio.TimerHandle | None = None
    _lingering: Lingering

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.conn: Strict = Strict(h11.SERVER, max_incomplete_event_size=HEADER_BYTES)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        # uvicorn has the same, narrower than asyncio's
        self._lingering = Lingering(transport, lambda: self.conn.unread)
        super().connection_made(self._lingering)  # type: ignore[arg-type]  # stands for one
        if len(self.connections) > self.most:
            transport.abort()
        else:
            with suppress(AttributeError, OSError):  # Linux ends such a connection itself
                transport.get_extra_info("socket").setsockopt(
                    socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(UNREAD_SECONDS * 1000)
                )
            self._wait()

    def data_received(self, data: bytes) -> None:
        if self._lingering.lingers:
            self._lingering.thrown_away(len(data))
            return
        super().data_received(data)
        asked = self.cycle is not None and not self.cycle.response_complete
        if asked and self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._waiting is None and self.cycle is not None and self.cycle.response_complete:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lingering.gone()
        super().connection_lost(exc)
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def send_400_response(self, msg: str) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # nothing that is answered to its head can be sent now
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def shutdown(self) -> None:
        if self._lingering.lingers:  # it has its answer, and the server ends
            self._lingering.abort()
        else:
            super().shutdown()

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(HEADER_SECONDS, self._nobody_asked)

    def _nobody_asked(self) -> None:
        self._waiting = None
        if not self.transport.is_closing():
            self.transport.close()


def bounded(connections: int) -> type[Connection]:
    """The class of the connections of a server that means to hold so many, with files for them."""
    most = 2 * connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(OSError, ValueError):  # then the system's own bound is met first
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return type("Connection", (Connection,), {"most": most})
