"""Runs work beside the event loop in threads that hold up nothing: not the engine, not the end.

A thread that has run a parallel torch operation keeps a pool of helper threads until it ends. With
more of them than cores, libgomp no longer lets waiting helpers spin: each operation of the engine
then begins by waking them. Loading in a lasting executor thread made every later round of the
engine half as long again here (2 cores: 48 ms instead of 32 at K = 4, 135M parameters). So what
uses torch gets a thread that ends with it. And an executor's threads are waited for when the
process ends, however long what they do takes; these are not.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

R = TypeVar("R")


async def in_passing_thread(work: Callable[[], R]) -> R:
    """The result of `work`, run in a thread of its own; raises what it raises, `raisable`.

    Cancelling the wait does not stop the work.
    """
    result, run = _awaited(work)
    threading.Thread(target=run, name="paceline-loading", daemon=True).start()
    return await result


class Aside:
    """One lasting thread for short work without torch: one piece at a time, in order."""

    def __init__(self, name: str) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def run(self, work: Callable[[], R]) -> R:
        """The result of `work`; raises what it raises. Work whose wait was cancelled before it
        began is not done."""
        result, run = _awaited(work)
        self._work.put(run)
        return await result

    def close(self) -> None:
        """Let the thread end after what it is at."""
        self._work.put(None)

    def _run(self) -> None:
        while (run := self._work.get()) is not None:
            run()
            del run  # while it waits for the next it would hold a pair that is to be let go


def raisable(error: BaseException) -> Exception:
    """`error`, or what stands for one that no `except Exception` would stop: a panic of a library
    in Rust, say, which must not end whoever waits. Without its words, which may be a client's."""
    if isinstance(error, Exception):
        return error
    return RuntimeError(f"{type(error).__name__} was raised by what ran aside")


def _awaited(work: Callable[[], R]) -> tuple[asyncio.Future[R], Callable[[], None]]:
    """A future of the running loop, and what fulfils it from any thread."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[R] = loop.create_future()

    def settle(value: R | None, error: Exception | None) -> None:
        if result.cancelled():
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(value)  # type: ignore[arg-type]  # without an error it is an R

    def run() -> None:
        if result.cancelled():
            return
        value, error = None, None
        try:
            value = work()
        except BaseException as raised:  # the waiting side raises it
            error = raisable(raised)
        try:
            loop.call_soon_threadsafe(settle, value, error)
        except RuntimeError:  # the loop has ended: nobody waits
            return

    return result, run
