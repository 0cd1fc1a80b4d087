"""An HTTP transport whose answers come as streams, as they do from a network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import httpx


class Whole(httpx.AsyncByteStream):
    """A body in one piece."""

    def __init__(self, body: bytes) -> None:
        self.body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self.body


def answering(answer: Callable[[httpx.Request], httpx.Response]) -> httpx.MockTransport:
    """`answer` may give a response with content, or with a stream of its own."""

    def streamed(request: httpx.Request) -> httpx.Response:
        found = answer(request)
        if not found.is_stream_consumed:
            return found
        headers = {k: v for k, v in found.headers.items() if k != "content-length"}
        return httpx.Response(found.status_code, headers=headers, stream=Whole(found.content))

    return httpx.MockTransport(streamed)
