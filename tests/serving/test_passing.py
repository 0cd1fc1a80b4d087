"""Work with torch leaves no thread behind, so that the engine keeps the cores to itself."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from serving.passing import in_passing_thread


def names() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def test_the_result_comes_from_a_thread_that_has_ended() -> None:
    ran_in: list[threading.Thread] = []

    def work() -> int:
        ran_in.append(threading.current_thread())
        return 7

    assert asyncio.run(in_passing_thread(work)) == 7
    ran_in[0].join(timeout=10)
    assert not ran_in[0].is_alive()
    assert ran_in[0] is not threading.main_thread()


def test_what_the_work_raises_is_raised_to_who_waits() -> None:
    def work() -> None:
        raise ValueError("no such folder")

    with pytest.raises(ValueError, match="no such folder"):
        asyncio.run(in_passing_thread(work))


def test_a_wait_that_is_cancelled_lets_the_work_end_quietly() -> None:
    async def story() -> None:
        task = asyncio.ensure_future(in_passing_thread(lambda: time.sleep(0.1)))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(story())
    deadline = time.monotonic() + 10
    while "paceline-loading" in names() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "paceline-loading" not in names()
