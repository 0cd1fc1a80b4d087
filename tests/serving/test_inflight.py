"""The end waits for what is on its way, and not for who asks again."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive, Scope, Send

from serving.inflight import InFlight


def test_responses_that_had_begun_are_waited_for_and_later_ones_are_not() -> None:
    async def story() -> None:
        doors = {"first": asyncio.Event(), "later": asyncio.Event()}

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await doors[scope["path"]].wait()
            if scope["path"] == "first":
                raise ConnectionError  # however it ends

        async def receive() -> Message:
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            return None

        replies = InFlight(app)
        first = asyncio.ensure_future(replies({"path": "first"}, receive, send))
        await asyncio.sleep(0)
        assert await replies.left(0.01) == 1
        left = asyncio.ensure_future(replies.left(10))
        await asyncio.sleep(0)
        later = asyncio.ensure_future(replies({"path": "later"}, receive, send))
        doors["first"].set()
        assert await left == 0
        assert await replies.left(0.01) == 1
        doors["later"].set()
        await asyncio.gather(first, later, return_exceptions=True)
        assert await replies.left(0.0) == 0

    asyncio.run(story())
