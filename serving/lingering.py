"""Ends a connection whose client still sends: it is told so, and what comes is taken and not read.

To close at once would make the system reset the connection, and the answer might never be seen; to
read on would let one who was turned away keep the event loop busy. Knows asyncio's transports.
Source: RFC 9112, section 9.6, "Tear-down".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

LINGER_SECONDS = 10.0
LINGER_BYTES = 64 << 20


class Lingering:
    """`transport`, which closes in two steps while `unread()` says that more is to come."""

    def __init__(self, transport: asyncio.Transport, unread: Callable[[], bool]) -> None:
        self._transport, self._unread = transport, unread
        self._timer: asyncio.TimerHandle | None = None
        self._left_bytes = LINGER_BYTES

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    @property
    def lingers(self) -> bool:
        """Whether what comes is to be thrown away."""
        return self._timer is not None

    def is_closing(self) -> bool:
        return self.lingers or self._transport.is_closing()

    def close(self) -> None:
        if self.is_closing():
            return
        if not self._unread():
            self._transport.close()
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(LINGER_SECONDS, self._transport.abort)
        with suppress(OSError, RuntimeError):  # the client is gone: then its end is near anyway
            self._transport.write_eof()  # once what was written is sent
            self._transport.resume_reading()

    def thrown_away(self, size: int) -> None:
        """So many bytes came after the answer."""
        self._left_bytes -= size
        if self._left_bytes < 0:
            self._transport.abort()

    def gone(self) -> None:
        """The connection is no more."""
        if self._timer is not None:
            self._timer.cancel()
