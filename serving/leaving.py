"""Notices that a client has left while something is done for it. Knows ASGI and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

R = TypeVar("R")


async def disconnected(receive: Receive) -> None:
    """Wait until the client of a request whose body was read has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, R]) -> R:
    """The result of `work`. It is cancelled, and ClientDisconnect raised, if the client leaves."""
    doing = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(disconnected(receive))
    try:
        await asyncio.wait({doing, gone}, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return await doing
        raise ClientDisconnect
    finally:
        for task in (doing, gone):
            task.cancel()
        await asyncio.gather(doing, gone, return_exceptions=True)
