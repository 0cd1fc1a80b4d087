"""LangChain's client: what it sends is taken, what it reads is there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.serving.served import Served

ASKED = [("system", "be brief"), ("human", "the quick brown fox")]
pytestmark = pytest.mark.slow  # it takes seconds to import


def client(server: Served, **more: Any) -> dict[str, Any]:
    return {
        "model": "toy",
        "base_url": f"{server.url}/v1",
        "api_key": "none",
        "temperature": 0,
    } | more


@pytest.fixture(scope="module")
def connection() -> Iterator[httpx.Client]:
    """Its own is never closed."""
    with httpx.Client(trust_env=False) as connection:
        yield connection


@pytest.fixture(scope="module")
def chat(server: Served, connection: httpx.Client) -> Any:
    from langchain_openai import ChatOpenAI

    given = client(server, http_client=connection, max_completion_tokens=20, stream_usage=True)
    return ChatOpenAI(**given)


def test_a_chat_is_answered_whole_streamed_and_in_batches_alike(chat: Any) -> None:
    whole = chat.invoke(ASKED)
    assert whole.content
    assert whole.response_metadata["finish_reason"] == "length"
    assert whole.usage_metadata["output_tokens"] == 20
    chunks = list(chat.stream(ASKED))
    assert "".join(chunk.content for chunk in chunks) == whole.content
    assert [one.usage_metadata for one in chunks if one.usage_metadata] == [whole.usage_metadata]
    assert [one.content for one in chat.batch([ASKED, ASKED])] == [whole.content] * 2


def test_a_chat_is_answered_alike_without_waiting(chat: Any, server: Served) -> None:
    from langchain_openai import ChatOpenAI

    async def both() -> tuple[str, str]:
        async with httpx.AsyncClient(trust_env=False) as connection:
            given = client(server, http_async_client=connection, max_completion_tokens=20)
            waited = ChatOpenAI(**given)
            whole = await waited.ainvoke(ASKED)
            return str(whole.content), "".join(
                [str(c.content) async for c in waited.astream(ASKED)]
            )

    assert asyncio.run(both()) == (chat.invoke(ASKED).content,) * 2


def test_a_conversation_goes_on_with_the_answer_that_was_given(chat: Any) -> None:
    from langchain_core.messages import HumanMessage

    first = HumanMessage("the quick brown fox", name="ada")
    answer = chat.invoke([first])
    again = chat.invoke([first, answer, HumanMessage([{"type": "text", "text": "and then"}])])
    assert again.usage_metadata["input_tokens"] > answer.usage_metadata["total_tokens"]


def test_several_answers_log_probabilities_and_stops_are_understood(chat: Any) -> None:
    from langchain_core.messages import HumanMessage

    asked = [[HumanMessage("the fox")]]
    generated = chat.generate(asked, n=2, temperature=1, seed=3)
    assert len({one.text for one in generated.generations[0]}) == 2
    told = chat.bind(logprobs=True, top_logprobs=2).invoke("the fox")
    assert len(told.response_metadata["logprobs"]["content"]) == 20
    full = chat.invoke("the fox").content
    assert chat.invoke("the fox", stop=[full[4:6]]).content == full[: full.find(full[4:6])]


def test_plain_completions_take_many_prompts_at_once(
    server: Served, connection: httpx.Client
) -> None:
    from langchain_openai import OpenAI

    llm = OpenAI(**client(server, http_client=connection, max_tokens=12))
    prompts = ["the quick", "brown fox", "jumps"]
    together = llm.generate(prompts)
    assert [one[0].text for one in together.generations] == [llm.invoke(one) for one in prompts]
    assert "".join(llm.stream("the quick")) == llm.invoke("the quick")


def test_what_is_refused_is_raised_with_its_reason(chat: Any) -> None:
    import openai

    with pytest.raises(openai.BadRequestError, match="context"):
        chat.invoke("x" * 2000)
