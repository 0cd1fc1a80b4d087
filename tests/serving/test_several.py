"""Several answers, several prompts, adapters and coalesced streams, through the official client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from serving.settings import ServeSettings
from tests.serving.served import Served, serving
from tests.toys import toy_adapter_folder

PROMPTS = ["the quick", "brown fox", "jumps over", "the lazy", "dog"]
MESSAGES: Any = [{"role": "user", "content": "the quick brown fox"}]
COALESCED = 3


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def adapted(
    target_folder: Path, draft_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[openai.OpenAI]:
    """A server with an adapter that sends its streams in chunks of so many tokens."""
    folder = tmp_path_factory.mktemp("adapted")
    adapter = toy_adapter_folder(target_folder, folder / "adapter", r=4, lora_alpha=16)
    settings = ServeSettings(
        home=folder / "home",
        target=target_folder,
        draft=str(draft_folder),
        adapters={"lawyer": adapter},
        adaptive=False,
        max_context=300,
        coalesce_tokens=COALESCED,
    )
    with (
        serving(settings) as served,
        openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


def chat(client: openai.OpenAI, **more: Any) -> Any:
    given = {"model": "toy", "messages": MESSAGES, "max_tokens": 24, "temperature": 1, "seed": 5}
    return client.chat.completions.create(**(given | more))


def complete(client: openai.OpenAI, **more: Any) -> Any:
    given: dict[str, Any] = {"model": "toy", "max_tokens": 12, "temperature": 1, "seed": 5}
    return client.completions.create(**(given | more))


def test_each_choice_of_a_seed_is_the_same_alone_and_among_more(client: openai.OpenAI) -> None:
    one, three, again = (chat(client, n=n, logprobs=True) for n in (1, 3, 3))
    texts = [choice.message.content for choice in three.choices]
    assert [choice.index for choice in three.choices] == [0, 1, 2]
    assert len(set(texts)) == 3
    assert texts[0] == one.choices[0].message.content
    assert texts == [choice.message.content for choice in again.choices]
    assert three.usage.prompt_tokens == one.usage.prompt_tokens
    emitted = sum(len(choice.logprobs.content) for choice in three.choices)
    assert three.usage.completion_tokens == three.usage.paceline["emitted"] == emitted


@pytest.mark.parametrize("more", [{}, {"stop": ["e", "o"]}, {"logprobs": True, "top_logprobs": 2}])
def test_streamed_choices_are_the_whole_ones(client: openai.OpenAI, more: dict[str, Any]) -> None:
    whole = chat(client, n=3, **more)
    texts, finish, logprobs = ["", "", ""], ["", "", ""], [list[Any]() for _ in range(3)]
    opened, usage = list[int](), None
    options = {"include_usage": True}
    for chunk in chat(client, n=3, stream=True, stream_options=options, **more):
        usage = chunk.usage or usage
        assert chunk.id.startswith("chatcmpl-")
        for choice in chunk.choices:
            opened += [choice.index] if choice.delta.role else []
            texts[choice.index] += choice.delta.content or ""
            finish[choice.index] += choice.finish_reason or ""
            logprobs[choice.index] += choice.logprobs.content if choice.logprobs else []
    assert sorted(opened) == [0, 1, 2]
    assert texts == [choice.message.content for choice in whole.choices]
    assert finish == [choice.finish_reason for choice in whole.choices]
    if "logprobs" in more:
        assert logprobs == [choice.logprobs.content for choice in whole.choices]
    assert usage is not None
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert usage.prompt_tokens == whole.usage.prompt_tokens


def test_prompts_are_answered_in_their_order_each_as_often_as_asked(client: openai.OpenAI) -> None:
    together = complete(client, prompt=PROMPTS, n=2)
    assert [choice.index for choice in together.choices] == list(range(10))
    alone = [complete(client, prompt=prompt, n=2) for prompt in PROMPTS]
    assert [choice.text for choice in together.choices] == [
        choice.text for answer in alone for choice in answer.choices
    ]
    for counted in ("prompt_tokens", "completion_tokens", "total_tokens"):
        sums = sum(getattr(answer.usage, counted) for answer in alone)
        assert getattr(together.usage, counted) == sums
    streamed = [""] * 10
    for chunk in complete(client, prompt=PROMPTS, n=2, stream=True):
        for choice in chunk.choices:
            streamed[choice.index] += choice.text
    assert streamed == [choice.text for choice in together.choices]


def test_one_prompt_that_does_not_fit_refuses_all(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        complete(client, prompt=[[40] * 5, [40] * 299])
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as caught:
        complete(client, prompt=[[40] * 5, [299, 300]])
    assert caught.value.param == "prompt"


def test_a_stop_string_does_not_end_an_answer_before_its_least_tokens(
    client: openai.OpenAI,
) -> None:
    given: dict[str, Any] = {"temperature": 0, "max_tokens": 24}
    full = chat(client, **given).choices[0].message.content
    stop = full[1:3]
    assert chat(client, stop=stop, **given).choices[0].message.content == full[: full.find(stop)]
    for least in (8, 23):
        answer = chat(client, stop=stop, extra_body={"min_tokens": least}, **given)
        said = answer.choices[0].message.content
        assert answer.usage.completion_tokens > least
        assert full.startswith(said)
        assert stop in said
        text = ""
        for chunk in chat(
            client, stop=stop, extra_body={"min_tokens": least}, stream=True, **given
        ):
            text += chunk.choices[0].delta.content or ""
        assert text == said


def test_an_adapter_is_asked_for_as_a_model(adapted: openai.OpenAI) -> None:
    listed = {model.id: model for model in adapted.models.list()}
    assert set(listed) == {"toy", "lawyer"}
    assert adapted.models.retrieve("lawyer").parent == "toy"  # type: ignore[attr-defined]  # ours
    plain, lawyer = (chat(adapted, model=name, temperature=0) for name in ("toy", "lawyer"))
    assert (plain.model, lawyer.model) == ("toy", "lawyer")
    assert plain.usage.paceline["adapter"] is None
    assert lawyer.usage.paceline["adapter"] == "lawyer"
    assert plain.choices[0].message.content != lawyer.choices[0].message.content


@pytest.mark.parametrize("n", [1, 2])
def test_coalesced_chunks_hold_as_many_tokens_and_say_the_same(
    adapted: openai.OpenAI, n: int
) -> None:
    more: dict[str, Any] = {"n": n, "logprobs": True, "max_tokens": 25}
    whole = chat(adapted, **more)
    texts, sizes = [""] * n, [list[int]() for _ in range(n)]
    for chunk in chat(adapted, stream=True, **more):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            if choice.logprobs:
                sizes[choice.index].append(len(choice.logprobs.content or []))
    assert texts == [choice.message.content for choice in whole.choices]
    for index, choice in enumerate(whole.choices):
        tokens = len(choice.logprobs.content)
        assert sizes[index] == [COALESCED] * (tokens // COALESCED) + (
            [tokens % COALESCED] if tokens % COALESCED else []
        )
