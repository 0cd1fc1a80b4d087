"""The official client against a real server: what it sends is understood, what it gets is right."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.serving.served import Served

MESSAGES: Any = [{"role": "user", "content": "the quick brown fox"}]
COUNTED = {  # the `paceline` object of a usage
    *(
        "pair",
        "drafter",
        "release",
        "adapter",
        "draft_len",
        "adaptive",
        "rounds",
        "plain_forwards",
        "drafted",
    ),
    *("accepted", "emitted", "judged_per_position", "accepted_per_position"),
    *("prompt_tokens_cached", "queue_seconds", "prefill_seconds", "decode_seconds"),
}


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def ask(client: openai.OpenAI, **more: Any) -> Any:
    given = {"model": "toy", "messages": MESSAGES, "max_tokens": 40, "temperature": 0} | more
    return client.chat.completions.create(**given)


def streamed(client: openai.OpenAI, **more: Any) -> tuple[str, str, Any, list[Any]]:
    """Text, finish reason, usage and log-probabilities of a stream."""
    logprobs: list[Any] = []
    text, finish, usage = "", "", None
    options = {"include_usage": True}
    for chunk in ask(client, stream=True, stream_options=options, **more):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
            logprobs += choice.logprobs.content if choice.logprobs else []
    return text, finish, usage, logprobs


def counted(usage: Any) -> dict[str, Any]:
    """A usage without the times, which differ from run to run."""
    stored = usage.model_dump()
    times = ("queue_seconds", "prefill_seconds", "decode_seconds")
    stored["paceline"] = {k: v for k, v in stored["paceline"].items() if k not in times}
    return dict(stored)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"temperature": 0.8, "seed": 7},
        {"temperature": 1, "seed": 7, "top_p": 0.9, "extra_body": {"top_k": 20}},
        {"logprobs": True, "top_logprobs": 3},
        {"max_tokens": 1},
        {"presence_penalty": 0.5, "frequency_penalty": 1.5, "logit_bias": {"50": 3}},
        {"temperature": 1, "seed": 3, "extra_body": {"min_p": 0.1, "repetition_penalty": 1.5}},
    ],
    ids=["greedy", "seeded", "truncated", "logprobs", "one token", "penalties", "min_p"],
)
def test_a_stream_says_what_the_whole_answer_says(
    client: openai.OpenAI, more: dict[str, Any]
) -> None:
    whole = ask(client, **more)
    text, finish, usage, logprobs = streamed(client, **more)
    assert whole.choices[0].message.content == text
    assert whole.choices[0].finish_reason == finish
    assert counted(whole.usage) == counted(usage)
    assert (whole.choices[0].logprobs.content if more.get("logprobs") else []) == logprobs


def test_the_usage_holds_what_speculation_did(client: openai.OpenAI, server: Served) -> None:
    usage = ask(client).usage
    counts = usage.paceline
    assert set(counts) == COUNTED
    assert usage.completion_tokens == counts["emitted"] == 40
    assert counts["drafter"] == "head"
    assert counts["pair"] == server.client.get("/admin/pair").json()["pair"]
    assert counts["rounds"] > 0
    assert sum(counts["accepted_per_position"]) == counts["accepted"] <= counts["drafted"]
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    emitting = counts["rounds"] + counts["plain_forwards"]  # the prompt is one chunk, so one token
    assert emitting + counts["accepted"] == counts["emitted"]


def test_what_a_request_asks_of_its_tokens_is_done(client: openai.OpenAI) -> None:
    def text(**more: Any) -> str:
        return str(ask(client, temperature=0, max_tokens=20, **more).choices[0].message.content)

    usual = text()
    assert text(logit_bias={"60": 100}) != usual
    only = text(extra_body={"allowed_token_ids": [40, 41]})
    assert len(set(only)) <= 2
    assert text(extra_body={"banned_token_ids": list(range(40, 300))}) != usual
    assert text(frequency_penalty=2.0, presence_penalty=2.0) != usual


def test_a_seed_makes_the_answer_and_another_seed_another(client: openai.OpenAI) -> None:
    def text(seed: int) -> str:
        return str(ask(client, temperature=1, seed=seed).choices[0].message.content)

    assert text(1) == text(1)
    assert text(1) != text(2)


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_ends_the_answer_before_itself(client: openai.OpenAI, stream: bool) -> None:
    full = ask(client).choices[0].message.content
    for start in range(3, len(full) - 2, 9):
        stop = full[start : start + 2]
        if stream:
            text, finish, usage, _ = streamed(client, stop=stop)
        else:
            answer = ask(client, stop=[stop, "never said"])
            text, finish = answer.choices[0].message.content, answer.choices[0].finish_reason
            usage = answer.usage
        assert finish == "stop"
        assert text == full[: full.find(stop)]
        assert usage.completion_tokens <= 40


def test_log_probabilities_are_one_a_token_and_the_first_is_the_likeliest(
    client: openai.OpenAI,
) -> None:
    answer = ask(client, logprobs=True, top_logprobs=4)
    entries = answer.choices[0].logprobs.content
    assert len(entries) == answer.usage.completion_tokens
    for entry in entries:
        assert len(entry.top_logprobs) == 4
        assert entry.logprob == pytest.approx(entry.top_logprobs[0].logprob, abs=1e-4)  # greedy
        assert entry.logprob <= 0
    plain = [entry for entry in entries if not entry.token.startswith("<|")]  # no special tokens
    said = b"".join(bytes(entry.bytes) for entry in plain)
    assert said.decode("utf-8", "replace") == answer.choices[0].message.content


def test_completions_take_text_and_ids_and_tell_offsets(client: openai.OpenAI) -> None:
    given: Any = {"model": "toy", "max_tokens": 12, "temperature": 0, "logprobs": 2}
    answer = client.completions.create(prompt="the quick", **given)
    text, found = answer.choices[0].text, answer.choices[0].logprobs
    assert found is not None
    assert len(found.tokens or []) == len(found.text_offset or []) == 12
    assert (found.text_offset or [])[0] == 0
    chunks = client.completions.create(prompt="the quick", stream=True, **given)
    assert "".join(chunk.choices[0].text for chunk in chunks) == text


def test_an_answer_ends_at_the_targets_own_end_of_turn(client: openai.OpenAI) -> None:
    soon: dict[str, Any] = {"logit_bias": {"0": 6}, "extra_body": {"min_tokens": 3}}
    answer = ask(client, temperature=1, seed=1, n=2, logprobs=True, max_tokens=150, **soon)
    for choice in answer.choices:
        assert choice.finish_reason == "stop"
        assert "<|end|>" not in choice.message.content
        assert choice.logprobs.content[-1].token == "<|end|>"
        assert 3 < len(choice.logprobs.content) < 150


def test_many_at_once_get_the_answers_that_each_gets_alone(
    client: openai.OpenAI, server: Served
) -> None:
    async def together(prompts: list[str]) -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as many:
            answers = [
                many.chat.completions.create(
                    model="toy",
                    messages=[{"role": "user", "content": prompt}],
                    max_tokens=20,
                    temperature=0,
                )
                for prompt in prompts
            ]
            return [str(a.choices[0].message.content) for a in await asyncio.gather(*answers)]

    prompts = [f"prompt {number} " * (1 + number % 5) for number in range(8)]
    alone = [ask(client, messages=[{"role": "user", "content": p}], max_tokens=20) for p in prompts]
    assert asyncio.run(together(prompts)) == [a.choices[0].message.content for a in alone]


def test_a_trial_answers_from_the_arm_that_was_asked_for(trial: Served) -> None:
    with openai.OpenAI(base_url=f"{trial.url}/v1", api_key="none") as client:
        answers = {
            arm: ask(client, extra_body={"paceline": {"arm": arm, "draft_len": 3}})
            for arm in ("candidate", "ngram", "none")
        }
        with pytest.raises(openai.BadRequestError, match="candidate, ngram, none"):
            ask(client, extra_body={"paceline": {"arm": "other"}})
    assert len({answer.choices[0].message.content for answer in answers.values()}) == 1
    told = {arm: answer.usage.paceline for arm, answer in answers.items()}
    assert {arm: one["drafter"] for arm, one in told.items()} == {arm: arm for arm in told}
    assert len({one["pair"] for one in told.values()}) == 3
    assert told["candidate"]["draft_len"] == 3
    assert told["none"]["rounds"] == told["none"]["drafted"] == told["none"]["draft_len"] == 0
    assert len(told["candidate"]["judged_per_position"]) == 3


def test_a_prompt_that_begins_as_one_before_says_so_and_is_answered_alike(
    client: openai.OpenAI,
) -> None:
    prompt = [40 + n % 7 for n in range(80)]

    def complete() -> Any:
        return client.completions.create(
            model=client.models.list().data[0].id, prompt=prompt, max_tokens=12, temperature=0
        )

    complete()
    first, again = complete(), complete()
    assert first.choices[0].text == again.choices[0].text
    assert again.usage.prompt_tokens_details.cached_tokens == 64  # two whole blocks
    assert again.usage.paceline["prompt_tokens_cached"] == 64
