"""Sends a group's answer over ASGI, and notices when nobody is there to take it any more.

Knows ASGI messages and deadlines; what an answer says is `answers`' business. A client that leaves
or stops reading, a deadline and the server's own end all give the group up, which frees its slots
within a round.
"""

from __future__ import annotations

import asyncio
import logging

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from serving.answers import Answer, Body, to_json
from serving.bodies import Ask
from serving.choices import Piece
from serving.coalescing import Coalescing
from serving.edge import where
from serving.errors import CUT_SHORT, DEADLINE, ENGINE_FAILED, NOT_WRITTEN, Failure
from serving.lanes import told
from serving.leaving import disconnected
from serving.tickets import DeadlineError, Group
from speculation.sequence import Event

log = logging.getLogger("paceline.serving")

DONE = b"data: [DONE]\n\n"
LAST_WORD_SECONDS = 5.0  # for a client to take what ends its answer, after the deadline
STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # proxies that buffer would make a stream one lump
}


class CutShortError(Exception):
    """The request ended without being done; `failure` is what its client is told."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def json_response(
    body: object, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    return Response(to_json(body), status, headers, "application/json")


def failed(failure: Failure, headers: dict[str, str] | None = None) -> Response:
    """The response that says why there is no answer."""
    return json_response(failure.body, failure.status, {**failure.headers, **(headers or {})})


class Reply(Response):
    """The response to an admitted request."""

    def __init__(self, answer: Answer, group: Group, *, coalesce_tokens: int = 0) -> None:
        self.answer, self.group = answer, group
        self._chunks = [Coalescing(coalesce_tokens) for _ in answer.choices]
        self._identity = {"x-request-id": answer.id}  # as OpenAI's clients know it
        self._started = False
        self.background = None

    @classmethod
    def to(cls, ask: Ask, group: Group, model: str, *, coalesce_tokens: int = 0) -> Reply:
        """The reply to `ask`. A group that nobody will answer is given up."""
        try:
            return cls(Answer.to(ask, group, model), group, coalesce_tokens=coalesce_tokens)
        except BaseException:
            group.give_up("gone")
            raise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def bounded(message: Message) -> None:
            left = self.group.until - self.group.clock()
            async with asyncio.timeout(max(left, 0.0) + LAST_WORD_SECONDS):
                await send(message)

        work = asyncio.ensure_future(self._work(scope, receive, bounded))
        gone = asyncio.ensure_future(disconnected(receive))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.group.give_up("gone")
            for task in (work, gone):
                if not task.done():
                    task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)

    async def _work(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._answer(scope, receive, send)
        except CutShortError as cut:
            await self._fail(cut.failure, scope, receive, send)
        except (OSError, TimeoutError):  # the connection broke while we wrote, or nobody reads it
            pass
        except Exception as error:  # the edge: one request's fault must not reach another's
            log.error(
                "request %s could not be answered: %s\n%s",
                self.answer.id,
                told(error),
                where(error),
            )
            await self._fail(NOT_WRITTEN, scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.answer.ask.stream:
            await self._stream(send)
        else:
            await self._whole(scope, receive, send)

    async def _fail(self, failure: Failure, scope: Scope, receive: Receive, send: Send) -> None:
        """By a status as long as there is one to give, then by an event."""
        self.group.give_up("gone")
        try:
            if self._started:
                await self._chunk(send, failure.body)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            else:
                await failed(failure, self._identity)(scope, receive, send)
        except (OSError, TimeoutError):  # nobody to tell it to
            pass

    async def _whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        pieces = [list[Piece]() for _ in self.answer.choices]
        while not self._complete:
            index, event = await self._event()
            pieces[index] += self.answer.take(index, event)
        body = self.answer.whole([Piece.joined(one) for one in pieces])
        await json_response(body, headers=self._identity)(scope, receive, send)

    async def _stream(self, send: Send) -> None:
        index, event = await self._event()  # before the first byte a failure still has a status
        await self._open(send)
        for chunk in self.answer.opening():
            await self._chunk(send, chunk)
        while True:
            pieces = self.answer.take(index, event)
            ready = self._chunks[index].take(pieces, last=event.outcome is not None)
            for chunk in self.answer.chunks(index, ready):
                await self._chunk(send, chunk)
            if self._complete:
                break
            index, event = await self._event()
        if self.answer.ask.stream_usage:
            await self._chunk(send, self.answer.closing())
        await send({"type": "http.response.body", "body": DONE, "more_body": False})

    @property
    def _complete(self) -> bool:
        return all(choice.last is not None for choice in self.answer.choices)

    async def _event(self) -> tuple[int, Event]:
        """The next event. Raises CutShortError for one that says the request failed."""
        try:
            index, event = await self.group.next()
        except DeadlineError:
            raise CutShortError(DEADLINE) from None
        if event.outcome == "cancelled":
            raise CutShortError(CUT_SHORT)
        if event.outcome == "error":
            raise CutShortError(ENGINE_FAILED)
        return index, event

    async def _open(self, send: Send) -> None:
        headers = {**STREAM_HEADERS, **self._identity}
        self._started = True
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            }
        )

    async def _chunk(self, send: Send, body: Body) -> None:
        line = b"data: " + to_json(body) + b"\n\n"
        await send({"type": "http.response.body", "body": line, "more_body": True})
