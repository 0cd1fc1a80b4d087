"""Ends requests that other threads wait for, without closing a socket under their hands.

A descriptor that is closed while another thread reads from it is soon somebody else's, and the read
goes on there, for ever in the worst case. Shut down, a socket stays its reader's, who sees its end.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakSet

OPENED = ("connection.connect_tcp.complete", "connection.start_tls.complete")  # httpcore's events


class Sockets:
    """The connections of one httpx client: `trace` is its requests' extension of that name."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._open: WeakSet[socket.socket] = WeakSet()

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def pause(self, seconds: float) -> None:
        """Sleep so long, or until the end."""
        self._ended.wait(seconds)

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Told of what a request does; notes the sockets that it opens."""
        if event in OPENED:
            opened = info["return_value"].get_extra_info("socket")
            with self._lock:
                self._open.add(opened)
                if self.ended:
                    _shut(opened)

    def end(self) -> None:
        """Whoever reads or writes sees the connection's end now, and so does every later one."""
        with self._lock:
            self._ended.set()
            for opened in self._open:
                _shut(opened)


def _shut(opened: socket.socket) -> None:
    with suppress(OSError):  # it has ended already
        opened.shutdown(socket.SHUT_RDWR)
