"""Runs work that uses torch in a thread that ends with it. Knows threads and the event loop.

A thread that has run a parallel torch operation keeps a pool of helper threads until it ends. With
more of them than cores, libgomp no longer lets waiting helpers spin: each operation of the engine
then begins by waking them. Loading in a lasting executor thread made every later round of the
engine half as long again here (2 cores: 48 ms instead of 32 at K = 4, 135M parameters).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

R = TypeVar("R")


async def in_passing_thread(work: Callable[[], R]) -> R:
    """The result of `work`, run in a thread of its own; raises what it raises.

    Cancelling the wait does not stop the work.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[R] = loop.create_future()

    def settle(value: R | None, error: BaseException | None) -> None:
        if result.cancelled():
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(value)  # type: ignore[arg-type]  # without an error it is an R

    def run() -> None:
        value, error = None, None
        try:
            value = work()
        except BaseException as raised:  # the waiting side raises it
            error = raised
        try:
            loop.call_soon_threadsafe(settle, value, error)
        except RuntimeError:  # the loop has ended: nobody waits
            return

    threading.Thread(target=run, name="paceline-loading", daemon=True).start()
    return await result
