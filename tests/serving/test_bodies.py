"""Request bodies: understood, or refused by name; never anything else."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.bodies import NEUTRAL, Ask, read_body, read_chat, read_completion
from serving.fields import BadRequest

HELLO = {"messages": [{"role": "user", "content": "hello"}]}
NAMES = st.sampled_from(
    [
        *("model", "messages", "prompt", "max_tokens", "temperature", "top_p", "top_k", "seed"),
        *("stop", "stream", "stream_options", "logprobs", "top_logprobs", "paceline", "n", "user"),
        *NEUTRAL,
    ]
)
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
def test_any_object_is_an_ask_or_a_refusal(body: dict[str, Any]) -> None:
    for read in (read_chat, read_completion):
        for whole in (body, {**body, **HELLO}, {**body, "prompt": "x"}):
            with suppress(BadRequest):
                assert isinstance(read(whole), Ask)


@given(raw=st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_an_object_or_a_refusal(raw: bytes) -> None:
    with suppress(BadRequest):
        assert isinstance(read_body(raw), dict)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff\xfe{}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"max_tokens": ' + b"9" * 10_000 + b"}",
        b'{"temperature": NaN}',
        b'{"temperature": -Infinity}',
        b'"text"',
        b"null",
    ],
    ids=["empty", "not utf-8", "lists", "objects", "digits", "nan", "infinity", "text", "null"],
)
def test_a_hostile_body_is_refused(raw: bytes) -> None:
    with pytest.raises(BadRequest):
        read_body(raw)


@pytest.mark.parametrize("name", ["best_off", "prompt", "max_token", "Temperature", "\ud800", ""])
def test_an_unknown_parameter_is_named(name: str) -> None:
    error = refused(**{name: 1})
    assert error.parameter == ascii(name)[1:-1]
    assert repr(error.parameter)[1:-1] in repr(error.message)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 2),
        ("echo", True),
        ("tools", [{"type": "function"}]),
        ("response_format", {"type": "json_object"}),
        ("best_of", True),  # true equals 1 in Python, and is no number
    ],
)
def test_a_parameter_that_is_not_supported_is_named(name: str, value: object) -> None:
    error = refused(**{name: value})
    assert error.parameter == name
    assert "not supported" in error.message


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
        ("allowed_token_ids", 5),
        ("banned_token_ids", [-1]),
        ("stop_token_ids", [True]),
        ("min_tokens", -1),
        ("max_tokens", 0),
        ("max_tokens", True),
        ("max_tokens", 10**30),
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
    ],
)
def test_a_message_that_cannot_be_read_is_named(messages: object, parameter: str) -> None:
    assert refused(messages=messages).parameter == parameter


def test_the_parts_of_a_message_are_one_text() -> None:
    parts = [{"type": "text", "text": "he"}, {"type": "text", "text": "llo"}]
    assert chat(messages=[{"role": "user", "content": parts}]) == chat()


def test_both_limits_are_one_limit() -> None:
    assert chat(max_completion_tokens=7).max_tokens == chat(max_tokens=7).max_tokens == 7
    assert chat(max_tokens=7, max_completion_tokens=7).max_tokens == 7
    assert refused(max_tokens=7, max_completion_tokens=8).parameter == "max_tokens"


@pytest.mark.parametrize("prompt", ["x", ["x"], [5, 6], [[5, 6]]])
def test_a_prompt_is_text_or_token_ids_alone_or_in_a_list(prompt: object) -> None:
    assert read_completion({"prompt": prompt}).prompt in ("x", (5, 6))


@pytest.mark.parametrize("prompt", [None, "", [], ["a", "b"], [[1], [2]], [1, "a"], [True], [-1]])
def test_a_prompt_that_is_none_is_refused(prompt: object) -> None:
    with pytest.raises(BadRequest) as caught:
        read_completion({"prompt": prompt})
    assert caught.value.parameter == "prompt"
