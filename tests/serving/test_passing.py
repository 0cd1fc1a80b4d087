"""Work with torch leaves no thread behind, so that the engine keeps the cores to itself."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial

import pytest

from serving.passing import Aside, in_passing_thread


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


class PanicException(BaseException):
    """As libraries in Rust raise it."""


def test_a_panic_aside_ends_nobody_who_waits_and_keeps_its_words_to_itself() -> None:
    def work() -> None:
        raise PanicException("at 'a prompt'")

    async def story() -> None:
        aside = Aside("paceline-test")
        for run in (in_passing_thread, aside.run):
            with pytest.raises(RuntimeError, match="PanicException") as caught:
                await run(work)
            assert "prompt" not in str(caught.value)
        aside.close()

    asyncio.run(story())


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


def test_work_aside_is_done_in_order_but_for_what_nobody_waits_for_any_more() -> None:
    done, go = list[int](), threading.Event()

    async def story() -> None:
        aside = Aside("paceline-test")

        def work(number: int) -> int:
            go.wait(10)
            done.append(number)
            if number == 3:
                raise ValueError("three")
            return number

        asked = [asyncio.ensure_future(aside.run(partial(work, n))) for n in range(4)]
        await asyncio.sleep(0.01)
        asked[1].cancel()
        await asyncio.sleep(0)
        go.set()
        found = await asyncio.gather(*asked, return_exceptions=True)
        aside.close()
        assert [type(one) for one in found] == [int, asyncio.CancelledError, int, ValueError]

    asyncio.run(story())
    assert done == [0, 2, 3]
