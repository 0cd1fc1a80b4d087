"""Takes requests' bodies off the wire, bounded in bytes and time, each and all together.

Knows nothing of what they say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from starlette.requests import Request

from serving.fields import BadRequest
from serving.tickets import QueueFullError

BODY_SECONDS = 30.0  # to send a whole body in
TOGETHER = 16  # of the longest bodies may be held at once
SMALL_BYTES = 65_536  # a body that needs no room: long ones must not keep it out
RETRY_SECONDS = 1  # for a long one to be done with


class Bodies:
    """What all bodies hold that are being read, or were and are not admitted yet."""

    def __init__(self, longest_bytes: int) -> None:
        self.held_bytes = 0
        self._most_bytes = TOGETHER * longest_bytes

    @contextmanager
    def room(self) -> Iterator[Callable[[int], None]]:
        """For one body, which says how long it is by now; QueueFullError where that is too much."""
        mine = 0

        def grown(size: int) -> None:
            nonlocal mine
            if size > SMALL_BYTES and self.held_bytes - mine + size > self._most_bytes:
                raise QueueFullError(RETRY_SECONDS)
            self.held_bytes += size - mine
            mine = size

        try:
            yield grown
        finally:
            self.held_bytes -= mine


def stated_bytes(request: Request) -> int:
    """How long the body is said to be; 0 where nothing is said."""
    stated = request.headers.get("content-length", "")
    return int(stated) if stated.isdigit() and len(stated) < 20 else 0


async def read_bytes(
    request: Request, most_bytes: int, grown: Callable[[int], None] = lambda size: None
) -> bytes:
    """The request's body; `grown` is told its length as it comes, and may raise.

    Raises BadRequest for one that is too long or comes too slowly.
    """
    too_long = BadRequest(f"the body is longer than {most_bytes} bytes", status=413)
    if stated_bytes(request) > most_bytes:
        raise too_long
    chunks, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                size += len(chunk)
                if size > most_bytes:
                    raise too_long
                grown(size)
                chunks.append(chunk)
    except TimeoutError:
        raise BadRequest("the body did not come in time", status=408) from None
    return b"".join(chunks)
