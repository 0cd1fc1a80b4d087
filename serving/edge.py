"""The last `except` of a request and of the event loop: a fault is told by its kind and its place.

An exception's own words may hold what was being read or decoded, and so may the arguments that it
came through, so neither goes anywhere. Knows ASGI and nothing of what is served.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from serving.lanes import told

log = logging.getLogger("paceline.serving")

LINES_A_MINUTE = 10
NO_ADVICE = "No supported WebSocket library"  # there is nothing here to be asked by WebSocket


class Edge:
    """`app`, which has answered for its faults when they come here: nobody above logs them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except Exception as error:
            log.error("a request failed: %s\n%s", told(error), where(error))


class Relayed(logging.Handler):
    """What the HTTP library warns of, as a line of our own log; no exception's own words.

    Anybody who connects can make it warn, so a minute has few such lines, and says how many more
    there were.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.WARNING)
        self._clock = clock
        self._minute, self._lines, self._left_out = -1, 0, 0

    def emit(self, record: logging.LogRecord) -> None:
        said = record.getMessage().strip()
        if said.startswith(NO_ADVICE):
            return
        minute = int(self._clock() // 60)
        if minute != self._minute:
            if self._left_out:
                log.warning("the HTTP server said %d things more", self._left_out)
            self._minute, self._lines, self._left_out = minute, 0, 0
        self._lines += 1
        if self._lines <= LINES_A_MINUTE:
            log.log(record.levelno, "the HTTP server says: %s", said)
        else:
            self._left_out += 1


def relay(name: str) -> None:
    """Take over the log of that name, whatever else in this process has made of it."""
    theirs = logging.getLogger(name)
    theirs.setLevel(logging.WARNING)
    theirs.disabled = theirs.propagate = False
    theirs.handlers[:] = [Relayed()]


def where(error: BaseException) -> str:
    """The lines of code that an error came through; no word of its own."""
    return "".join(traceback.format_tb(error.__traceback__))


def unheard(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """The event loop's handler of what nobody waits for."""
    error = context.get("exception")
    if isinstance(error, BaseException):  # the message beside it shows a callback's arguments
        log.error("something beside the requests failed: %s\n%s", told(error), where(error))
    else:
        log.error("the event loop says: %s", context.get("message"))
