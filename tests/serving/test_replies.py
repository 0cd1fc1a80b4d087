"""What goes over ASGI when an answer does not come to its end: a status or an event, and an end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from starlette.types import Message

from serving import replies
from serving.answers import to_json
from serving.bodies import Ask, read_completion
from serving.replies import Reply
from serving.text import Text
from serving.tickets import Group, Ticket
from speculation.records import Counts
from speculation.sequence import Event, Request
from tests.serving.fakes import FakePair

SCOPE = {"type": "http"}


def asked(*, stream: bool) -> Ask:
    return read_completion({"prompt": "x", "stream": stream})


def some(text: Text, words: str, outcome: str | None = None) -> Event:
    ids = text.encode(words)
    counts = Counts(plain_forwards=len(ids), emitted=len(ids))
    return Event("r", ids, (), outcome, None if outcome is None else counts)


def group(text: Text, until: float = 30.0) -> tuple[Group, list[str | None]]:
    """A group of one, and why it was given up. Its clock stands until it is told to go on."""
    left: list[str | None] = []
    ticket = Ticket(Request("r", (9,), 8), FakePair(text=text).loaded, started=1.0, arrived=0.0)
    made = Group((ticket,), until, lambda gone: left.append(gone.left), clock=lambda: 0.0)
    return made, left


def sent(
    ask: Ask,
    made: Group,
    events: Sequence[Event] = (),
    *,
    leaves: bool = False,
    takes: Callable[[Message], None] = lambda message: None,  # may raise
    stuck: bool = False,  # the client reads no more after the first message
) -> list[Message]:
    """What a client is sent, to whom `events` come."""
    messages: list[Message] = []

    async def over() -> None:
        for event in events:
            made.tickets[0].events.put_nowait((0, event))

        async def receive() -> Message:
            if not leaves:
                await asyncio.sleep(60)
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            takes(message)
            messages.append(message)
            if stuck:
                await asyncio.sleep(60)

        async with asyncio.timeout(20):
            await Reply.to(ask, made, "toy")(SCOPE, receive, send)

    asyncio.run(over())
    return messages


def body(messages: Sequence[Message]) -> str:
    return b"".join(one.get("body", b"") for one in messages).decode()


def status(messages: Sequence[Message]) -> int:
    return int(messages[0]["status"])


def last_event(messages: Sequence[Message]) -> dict[str, Any]:
    """The last `data:` line, of a stream that was ended as HTTP ends one."""
    assert messages[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
    lines = body(messages).strip().split("\n\n")
    found: dict[str, Any] = json.loads(lines[-1].removeprefix("data: "))
    return found


FAULTS = {
    "error": (500, "server_error", "engine_failed"),
    "cancelled": (503, "server_error", "shutting_down"),
}


@pytest.mark.parametrize("outcome", FAULTS)
@pytest.mark.parametrize("stream", [True, False])
def test_a_request_that_fails_before_its_first_byte_has_a_status(
    text: Text, stream: bool, outcome: str
) -> None:
    made, _ = group(text)
    messages = sent(asked(stream=stream), made, [some(text, "", outcome)])
    wanted, kind, code = FAULTS[outcome]
    assert status(messages) == wanted
    error = json.loads(body(messages))["error"]
    assert (error["type"], error["code"]) == (kind, code)
    headers = dict(messages[0]["headers"])
    assert (b"retry-after" in headers) == (wanted == 503)
    assert headers[b"x-request-id"] == b"r"


@pytest.mark.parametrize("outcome", FAULTS)
def test_a_stream_that_fails_ends_with_an_event_and_is_not_done(text: Text, outcome: str) -> None:
    made, _ = group(text)
    messages = sent(asked(stream=True), made, [some(text, "the"), some(text, "", outcome)])
    assert status(messages) == 200
    assert last_event(messages)["error"]["code"] == FAULTS[outcome][2]
    assert "[DONE]" not in body(messages)


@pytest.mark.parametrize("stream", [True, False])
def test_a_deadline_is_a_status_before_the_first_byte(text: Text, stream: bool) -> None:
    made, left = group(text, until=-1.0)
    messages = sent(asked(stream=stream), made)
    assert status(messages) == 504
    assert json.loads(body(messages))["error"]["code"] == "deadline_exceeded"
    assert left == ["deadline"]


def test_a_deadline_is_an_event_after_it(text: Text) -> None:
    made, left = group(text)

    def later(message: Message) -> None:
        made.clock = lambda: 31.0

    messages = sent(asked(stream=True), made, [some(text, "the")], takes=later)
    assert status(messages) == 200
    assert last_event(messages)["error"]["type"] == "timeout_error"
    assert left == ["deadline"]


@pytest.mark.parametrize("before", [0, 1])
def test_an_answer_that_cannot_be_written_says_so_and_ends(
    text: Text, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, left = group(text)

    def broken(told: Any) -> bytes:
        if "error" not in told and "fox" in str(told):
            raise ValueError("NaN")
        return to_json(told)

    monkeypatch.setattr("serving.replies.to_json", broken)
    events = [some(text, "the")] * before + [some(text, "fox")]
    messages = sent(asked(stream=True), made, events)
    assert last_event(messages)["error"]["code"] == "internal_error"
    assert "[DONE]" not in body(messages)
    assert left == ["gone"]
    made, left = group(text)
    messages = sent(asked(stream=False), made, [some(text, "fox", "stop")])
    assert status(messages) == 500


def test_a_client_that_leaves_is_noticed_while_nothing_is_sent(text: Text) -> None:
    made, left = group(text)
    assert sent(asked(stream=True), made, leaves=True) == []
    assert left == ["gone"]


def test_a_client_that_stops_reading_is_let_go_when_its_time_is_over(
    text: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "LAST_WORD_SECONDS", 0.05)
    made, left = group(text, until=0.05)
    assert len(sent(asked(stream=True), made, [some(text, "the")], stuck=True)) == 1
    assert left == ["gone"]


def test_a_connection_that_breaks_while_it_is_written_to_ends_the_request(text: Text) -> None:
    def broken(message: Message) -> None:
        raise OSError("reset by peer")

    made, left = group(text)
    assert sent(asked(stream=True), made, [some(text, "the")], takes=broken) == []
    assert left == ["gone"]


def test_a_request_that_nobody_can_answer_is_given_up_at_once(
    text: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Text, "completion", broken)
    made, left = group(text)
    with pytest.raises(MemoryError):
        Reply.to(asked(stream=True), made, "toy")
    assert left == ["gone"]
