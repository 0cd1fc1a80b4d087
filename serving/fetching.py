"""A download that runs for as long as its file is wanted, so that nothing can hold up who waits.

Knows the thread that downloads and when to ask whether it is still wanted; knows nothing of the
registry, nor of why it might not be.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from serving.passing import in_passing_thread

LAST_PIECE_SECONDS = 15.0  # for a download that is wanted no longer to notice that


class InterruptedDownloadError(Exception):
    """It is not wanted any more; the message is the reason."""


async def fetch(
    download: Callable[[Callable[[], bool]], Path],
    *,
    unwanted: Callable[[], Awaitable[str | None]],
    hurried: asyncio.Event,
    seconds: float,
) -> Path:
    """What `download` gives, which runs in a thread and asks between two pieces whether to stop.

    Every so many seconds, and when `hurried` is set, `unwanted` is asked for a reason to end it:
    then InterruptedDownloadError is raised. Else raises as `download` does.
    """
    stopping = threading.Event()
    downloading = asyncio.ensure_future(in_passing_thread(lambda: download(stopping.is_set)))
    downloading.add_done_callback(_retrieved)
    try:
        while not await _ended(downloading, hurried, seconds):
            hurried.clear()
            if (why := await unwanted()) is not None:
                stopping.set()
                await asyncio.wait({downloading}, timeout=LAST_PIECE_SECONDS)
                raise InterruptedDownloadError(why)
        return downloading.result()
    finally:
        stopping.set()
        downloading.cancel()


async def _ended(downloading: asyncio.Future[Path], hurried: asyncio.Event, seconds: float) -> bool:
    """Wait until it is time to look; whether the download has ended."""
    waiting = asyncio.ensure_future(hurried.wait())
    either: set[asyncio.Future[Any]] = {downloading, waiting}
    try:
        await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    return downloading.done()


def _retrieved(downloading: asyncio.Future[Path]) -> None:
    """Whoever waited may be gone, and asyncio would say that nobody took what it raised."""
    if not downloading.cancelled():
        downloading.exception()
