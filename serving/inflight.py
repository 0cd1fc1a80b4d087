"""Which responses are on their way, so that the end can wait for those that had begun.

Knows ASGI and nothing of what is served.
"""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send


class InFlight:
    """`app`, watched."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._inside: set[asyncio.Future[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._inside.add(done)
        try:
            await self._app(scope, receive, send)
        finally:
            self._inside.discard(done)
            done.set_result(None)

    async def left(self, seconds: float) -> int:
        """Wait for the responses that are on their way now; how many still are after `seconds`.

        Later ones are not waited for: who is turned away may ask again and again.
        """
        inside = set(self._inside)
        if inside:
            await asyncio.wait(inside, timeout=max(seconds, 0.0))
        return sum(not done.done() for done in inside)
