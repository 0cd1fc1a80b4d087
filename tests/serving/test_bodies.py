"""Request bodies: understood, or refused by name; never anything else."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.bodies import MOST_VALUES, Ask, read_body, read_chat, read_completion
from serving.fields import BadRequest
from serving.parameters import (
    MOST_CHOICES,
    NEUTRAL,
    Bounds,
    chat_parameters,
    completion_parameters,
)
from tests.serving.hostile import BODIES, RAW

HELLO = {"messages": [{"role": "user", "content": "hello"}]}
NAMES = st.sampled_from(sorted({*chat_parameters(), *completion_parameters()}))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


def chat(**more: Any) -> Ask:
    return read_chat({**HELLO, **more})


def refused(**more: Any) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        chat(**more)
    return caught.value


@given(body=st.dictionaries(NAMES | st.text(max_size=8), JSON, max_size=6))
@settings(max_examples=50)
def test_any_object_is_an_ask_or_a_refusal(body: dict[str, Any]) -> None:
    for read in (read_chat, read_completion):
        for whole in (body, {**body, **HELLO}, {**body, "prompt": "x"}):
            with suppress(BadRequest):
                assert isinstance(read(whole), Ask)


@given(raw=st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
@settings(max_examples=50)
def test_any_bytes_are_an_object_or_a_refusal(raw: bytes) -> None:
    with suppress(BadRequest):
        assert isinstance(read_body(raw), dict)


@pytest.mark.parametrize("raw", RAW.values(), ids=RAW)
def test_a_hostile_text_is_no_body(raw: bytes) -> None:
    with pytest.raises(BadRequest):
        read_body(raw)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_hostile_object_is_refused_in_both_apis(body: dict[str, Any]) -> None:
    said = {name: value for name, value in body.items() if name != "prompt"}
    asked = [(read_completion, body)]
    if said:  # else it is the prompt that is hostile, which a chat has not
        asked.append((read_chat, {**HELLO, **said}))
    for read, sent in asked:
        with pytest.raises(BadRequest) as refusal:
            read(read_body(json.dumps(sent).encode()))
        # For its own fault, and not for a field that the other API has.
        assert refusal.value.parameter not in {"messages", "prompt"} - body.keys()


def test_a_body_of_too_many_values_is_refused_before_it_is_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def parse(*given: object, **more: object) -> None:
        raise AssertionError("it was parsed")

    fits = {"prompt": [1] * (MOST_VALUES - 10)}
    assert read_body(json.dumps(fits).encode()) == fits
    words = {"prompt": ',"\\' * MOST_VALUES}  # within a text they are no values
    assert read_body(json.dumps(words).encode()) == words
    monkeypatch.setattr(json, "loads", parse)
    values: tuple[object, ...] = (1, {}, "a,b")
    for value in values:
        many = [value] * (MOST_VALUES + 2)
        with pytest.raises(BadRequest, match="more than") as caught:
            read_body(json.dumps({"prompt": many}).encode())
        assert caught.value.status == 413


def test_what_is_bounded_by_the_server_is_refused_before_it_is_walked() -> None:
    bounds = Bounds(messages=3, context=5)
    with pytest.raises(BadRequest, match="3 at most") as caught:
        read_chat({"messages": [None] * 4}, bounds)
    assert caught.value.parameter == "messages"
    with pytest.raises(BadRequest, match="5 at most") as caught:
        read_completion({"prompt": [None] * 6}, bounds)
    assert caught.value.code == "context_length_exceeded"
    assert read_completion({"prompt": [1] * 5}, bounds).prompts == ((1,) * 5,)


@pytest.mark.parametrize("name", ["best_off", "prompt", "max_token", "Temperature", "\ud800", ""])
def test_an_unknown_parameter_is_named(name: str) -> None:
    error = refused(**{name: 1})
    assert error.parameter == ascii(name)[1:-1]
    assert repr(error.parameter)[1:-1] in repr(error.message)
    assert error.code == "unknown_parameter"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("echo", True),
        ("tools", [{"type": "function"}]),
        ("response_format", {"type": "json_object"}),
        ("best_of", True),  # true equals 1 in Python, and is no number
    ],
)
def test_a_parameter_that_is_not_supported_is_named(name: str, value: object) -> None:
    error = refused(**{name: value})
    assert error.parameter == name
    assert error.code == "unsupported_parameter"


@pytest.mark.parametrize(("name", "values"), NEUTRAL.items())
def test_a_value_that_changes_nothing_is_taken(name: str, values: tuple[object, ...]) -> None:
    for value in (*values, None):
        assert chat(**{name: value}) == chat()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", "1"),
        ("temperature", True),
        ("temperature", float("inf")),
        ("top_p", 0),
        ("top_p", 1.5),
        ("top_k", -2),
        ("top_k", 1.5),
        ("min_p", 1.01),
        ("repetition_penalty", 0),
        ("presence_penalty", 2.5),
        ("frequency_penalty", "low"),
        ("logit_bias", [1]),
        ("logit_bias", {"-1": 1}),
        ("logit_bias", {"x": 1}),
        ("logit_bias", {"5": 1, "05": 2}),  # one token, written in two ways
        ("logit_bias", {"99999999999": 1}),
        ("logit_bias", {"5": None}),
        ("allowed_token_ids", 5),
        ("allowed_token_ids", []),
        ("banned_token_ids", [-1]),
        ("stop_token_ids", [True]),
        ("min_tokens", -1),
        ("max_tokens", 0),
        ("max_tokens", True),
        ("max_tokens", 10**30),
        ("max_tokens", []),
        ("max_completion_tokens", []),
        ("n", 0),
        ("n", 129),
        ("n", True),
        ("seed", 2**63),
        ("seed", "7"),
        ("stop", ""),
        ("stop", ["a"] * 17),
        ("stop", [1]),
        ("stop", "\ud800"),
        ("stream", 1),
        ("logprobs", 3),
        ("top_logprobs", 3),  # without logprobs: true
        ("stream_options", {"include_usage": True}),  # without stream: true
        ("model", 7),
        ("paceline", {"arm": 1}),
        ("paceline", {"k": 1}),
        ("paceline", []),
    ],
)
def test_a_value_out_of_range_is_named(name: str, value: object) -> None:
    error = refused(**{name: value})
    assert (error.parameter or "").split(".")[0] == name


def test_a_whole_number_may_be_written_with_a_point() -> None:
    assert chat(max_tokens=7.0, n=2.0) == chat(max_tokens=7, n=2)


@pytest.mark.parametrize("least", [8, 10**9])
def test_fewer_tokens_at_most_than_at_least_are_refused(least: int) -> None:
    assert refused(max_tokens=7, min_tokens=least).parameter == "min_tokens"
    assert chat(max_tokens=7, min_tokens=7, stop="x").min_tokens == 7
    with pytest.raises(BadRequest):  # where nothing is said it is 16
        read_completion({"prompt": "x", "min_tokens": 17})


@pytest.mark.parametrize(
    ("messages", "parameter"),
    [
        ([], "messages"),
        ("hello", "messages"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "robot", "content": "x"}], "messages[0].role"),
        ([{"role": ["user"], "content": "x"}], "messages[0].role"),
        ([{"role": "user", "content": "\udfff"}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0]"),
        ([{"role": "assistant", "content": "x", "tool_calls": [1]}], "messages[0].tool_calls"),
        ([{"role": "user", "content": "x", "weight": 0}], "messages[0].weight"),
        ([{"role": "user", "content": "x", "name": ""}], "messages[0].name"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "user", "content": "x"}] * 513, "messages"),
    ],
)
def test_a_message_that_cannot_be_read_is_named(messages: object, parameter: str) -> None:
    assert refused(messages=messages).parameter == parameter


def test_the_parts_of_a_message_are_one_text() -> None:
    parts = [{"type": "text", "text": "he"}, {"type": "text", "text": "llo"}]
    assert chat(messages=[{"role": "user", "content": parts}]) == chat()


def test_an_answer_may_be_sent_back_as_it_came() -> None:
    answer = {"role": "assistant", "content": None, "refusal": None, "tool_calls": None}
    asked = chat(messages=[*HELLO["messages"], {**answer, "annotations": []}])
    assert asked.messages[-1] == {"role": "assistant", "content": ""}


def test_a_name_in_a_message_is_the_templates_business() -> None:
    named = {"role": "user", "content": "hello", "name": "ada"}
    assert chat(messages=[named]).messages == (named,)


def test_both_limits_are_one_limit() -> None:
    assert chat(max_completion_tokens=7).max_tokens == chat(max_tokens=7).max_tokens == 7
    assert chat(max_tokens=7, max_completion_tokens=7).max_tokens == 7
    assert refused(max_tokens=7, max_completion_tokens=8).parameter == "max_tokens"


@pytest.mark.parametrize("prompt", ["x", ["x"], [5, 6], [[5, 6]]])
def test_a_prompt_is_text_or_token_ids_alone_or_in_a_list(prompt: object) -> None:
    assert read_completion({"prompt": prompt}).prompts in (("x",), ((5, 6),))


def test_several_prompts_are_texts_or_lists_of_ids_in_their_order() -> None:
    assert read_completion({"prompt": ["a", [1, 2], "c"]}).prompts == ("a", (1, 2), "c")
    assert read_completion({"prompt": ["a"] * 64, "n": 2}).n == 2


@pytest.mark.parametrize(("prompts", "n"), [(65, 2), (129, 1), (1, MOST_CHOICES + 1)])
def test_more_answers_than_a_request_may_have_are_refused(prompts: int, n: int) -> None:
    with pytest.raises(BadRequest, match="128"):
        read_completion({"prompt": ["a"] * prompts, "n": n})


@pytest.mark.parametrize(
    "prompt",
    [None, "", [], [""], ["a", []], [[1], 2], [1, "a"], [True], [-1], [[[1]]], {}, [{}], 5],
)
def test_a_prompt_that_is_none_is_refused(prompt: object) -> None:
    with pytest.raises(BadRequest) as caught:
        read_completion({"prompt": prompt})
    assert caught.value.parameter == "prompt"
