"""Sends one ticket's answer over ASGI, and notices when nobody is there to take it any more.

Knows ASGI messages and deadlines; what an answer says is `answers`' business. A client that leaves,
a deadline and the server's own end all cancel the ticket, which frees its slot within a round.
"""

from __future__ import annotations

import asyncio
import logging

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from serving.answers import Answer, Body, Piece, to_json
from serving.worker import Worker
from speculation.sequence import Event

log = logging.getLogger("paceline.serving")

DONE = b"data: [DONE]\n\n"
STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # proxies that buffer would make a stream one lump
}


class CutShortError(Exception):
    """The request ended without being done; what the client is told, and with which status."""

    def __init__(self, status: int, message: str, kind: str) -> None:
        super().__init__(message)
        self.status, self.body = status, error_body(message, kind=kind)


def error_body(
    message: str, *, kind: str, parameter: str | None = None, code: str | None = None
) -> Body:
    """An error as OpenAI's clients read it."""
    return {"error": {"message": message, "type": kind, "param": parameter, "code": code}}


def json_response(
    body: object, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    return Response(to_json(body), status, headers, "application/json")


class Reply(Response):
    """The response to an admitted request."""

    def __init__(self, answer: Answer, worker: Worker, *, deadline_seconds: float) -> None:
        self.answer, self.worker = answer, worker
        self.ticket = answer.ticket
        self._until = asyncio.get_running_loop().time() + deadline_seconds
        self._started = False
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        work = asyncio.ensure_future(self._work(scope, receive, send))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not self.ticket.ended:
                self.worker.cancel(self.ticket)
            for task in (work, gone):
                if not task.done():
                    task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)

    async def _work(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if self.answer.ask.stream:
                await self._stream(send)
            else:
                await self._whole(scope, receive, send)
        except CutShortError as cut:
            if self._started:
                await self._chunk(send, cut.body)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            else:
                await json_response(cut.body, cut.status)(scope, receive, send)
        except OSError:  # the connection broke while we wrote
            pass
        except Exception:  # the edge: one request's fault must not reach another's
            log.exception("request %s could not be answered", self.ticket.request.id)
            if not self._started:
                body = error_body("the server failed to write this answer", kind="server_error")
                await json_response(body, 500)(scope, receive, send)

    async def _whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        pieces: list[Piece] = []
        event = await self._event()
        pieces.append(self.answer.take(event))
        while event.outcome is None:
            event = await self._event()
            pieces.append(self.answer.take(event))
        await json_response(self.answer.whole(pieces, event))(scope, receive, send)

    async def _stream(self, send: Send) -> None:
        event = await self._event()  # before the first byte a failure still has a status
        await self._open(send)
        if (opening := self.answer.opening()) is not None:
            await self._chunk(send, opening)
        while True:
            for chunk in self.answer.chunks(self.answer.take(event), event):
                await self._chunk(send, chunk)
            if event.outcome is not None:
                break
            event = await self._event()
        if self.answer.ask.stream_usage:
            await self._chunk(send, self.answer.closing(event))
        await send({"type": "http.response.body", "body": DONE, "more_body": False})

    async def _event(self) -> Event:
        """The next event. Raises CutShortError for one that says the request failed."""
        try:
            async with asyncio.timeout_at(self._until):
                event = await self.worker.event(self.ticket)
        except TimeoutError:
            self.ticket.left = "deadline"
            self.worker.cancel(self.ticket)
            raise CutShortError(504, "the request took too long", "timeout_error") from None
        if event.outcome == "cancelled":
            raise CutShortError(503, "the server ended before the request", "server_error")
        if event.outcome == "error":
            raise CutShortError(500, "the engine failed on this request", "server_error")
        return event

    async def _open(self, send: Send) -> None:
        headers = [(name.encode(), value.encode()) for name, value in STREAM_HEADERS.items()]
        self._started = True
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _chunk(self, send: Send, body: Body) -> None:
        line = b"data: " + to_json(body) + b"\n\n"
        await send({"type": "http.response.body", "body": line, "more_body": True})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
