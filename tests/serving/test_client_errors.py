"""What goes wrong, as the official client sees it: classes, codes, when it tries again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from serving.choices import Choice
from serving.service import Service, UnavailableError
from serving.tickets import QueueFullError
from tests.serving.served import Served

MESSAGES: Any = [{"role": "user", "content": "the quick brown fox"}]
BAD = openai.BadRequestError


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def ask(client: openai.OpenAI, **more: Any) -> Any:
    given = {"model": "toy", "messages": MESSAGES, "max_tokens": 10, "temperature": 0} | more
    return client.chat.completions.create(**given)


@pytest.mark.parametrize(
    ("more", "kind", "named", "code"),
    [
        ({"n": 129}, BAD, "n", "invalid_value"),
        ({"presence_penalty": 3.0}, BAD, "presence_penalty", "invalid_value"),
        ({"logit_bias": {"99999": 1}}, BAD, "logit_bias", "invalid_value"),
        ({"extra_body": {"min_tokens": 41}}, BAD, "min_tokens", "invalid_value"),
        ({"extra_body": {"echo": True}}, BAD, "echo", "unsupported_parameter"),
        ({"extra_body": {"ecko": True}}, BAD, "ecko", "unknown_parameter"),
        ({"messages": openai.omit}, BAD, "messages", "missing_required_parameter"),
        ({"extra_body": {"paceline": {"arm": "none"}}}, BAD, "paceline", "invalid_value"),
        ({"max_tokens": 5000}, BAD, "max_tokens", "context_length_exceeded"),
        (
            {"messages": [{"role": "user", "content": "x" * 2000}]},
            BAD,
            "messages",
            "context_length_exceeded",
        ),
        ({"model": "gpt-4"}, openai.NotFoundError, "model", "model_not_found"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_is_the_error_that_the_client_knows(
    client: openai.OpenAI,
    more: dict[str, Any],
    kind: type[openai.APIStatusError],
    named: str,
    code: str,
    stream: bool,
) -> None:
    with pytest.raises(kind) as caught:
        ask(client, stream=stream, **more)
    assert (caught.value.param, caught.value.code) == (named, code)
    assert caught.value.type == "invalid_request_error"


def test_every_answer_has_an_id_that_the_exchange_log_has_too(
    client: openai.OpenAI, server: Served
) -> None:
    answer = ask(client)
    assert answer._request_id == answer.id
    assert answer.id in server.client.get("/admin/exchanges").text


def test_a_model_can_be_retrieved_by_its_name_and_no_other(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["toy"]
    found = client.models.retrieve("toy")
    assert (found.id, found.object, found.owned_by) == ("toy", "model", "paceline")
    assert abs(found.created - time.time()) < 3600
    for name in ("gpt-4", "toy/other"):
        with pytest.raises(openai.NotFoundError) as caught:
            client.models.retrieve(name)
        assert caught.value.code == "model_not_found"


@pytest.mark.parametrize(
    ("refusal", "kind", "code"),
    [
        (QueueFullError(7), openai.RateLimitError, "queue_full"),
        (UnavailableError("draining", 7), openai.InternalServerError, "unavailable"),
    ],
)
def test_the_client_comes_back_when_it_was_told_to(
    server: Served,
    monkeypatch: pytest.MonkeyPatch,
    refusal: Exception,
    kind: type[openai.APIStatusError],
    code: str,
) -> None:
    admit, left, slept = Service.admit, [refusal, refusal], list[float]()

    async def busy(self: Service, *given: Any, **more: Any) -> Any:
        if left:
            raise left.pop()
        return await admit(self, *given, **more)

    monkeypatch.setattr(Service, "admit", busy)
    monkeypatch.setattr("openai._base_client.time.sleep", slept.append)
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=2) as patient:
        assert ask(patient).choices[0].finish_reason == "length"
        assert slept == [7, 7]
        left.append(refusal)
        with pytest.raises(kind) as caught:
            ask(patient.with_options(max_retries=0))
    assert caught.value.code == code
    assert caught.value.response.headers["retry-after"] == "7"


def test_an_async_stream_says_what_the_whole_answer_says(
    client: openai.OpenAI, server: Served
) -> None:
    async def streamed() -> tuple[str, int]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as many:
            text, tokens = "", 0
            async for chunk in await many.chat.completions.create(
                model="toy",
                messages=MESSAGES,
                max_tokens=10,
                temperature=0,
                stream=True,
                stream_options={"include_usage": True},
            ):
                text += "".join(choice.delta.content or "" for choice in chunk.choices)
                tokens = chunk.usage.completion_tokens if chunk.usage else tokens
            return text, tokens

    whole = ask(client)
    assert asyncio.run(streamed()) == (whole.choices[0].message.content, 10)


def test_a_stream_that_fails_in_its_middle_raises_in_the_client(
    client: openai.OpenAI, server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, left = Choice.take, [True, False]

    def broken(self: Choice, event: Any) -> Any:
        if left and not left.pop():
            return take(self, event)
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(Choice, "take", broken)
    with pytest.raises(openai.APIError, match="failed to write"):
        for _ in ask(client, stream=True, max_tokens=40):
            pass
    monkeypatch.undo()
    assert ask(client).choices[0].message.content
