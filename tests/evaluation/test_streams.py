from __future__ import annotations

import json
from typing import Any

import pytest

from evaluation.streams import StreamError, joined


def chunk(**choice: Any) -> str:
    return "data: " + json.dumps({"choices": [{"index": 0, **choice}], "usage": None})


USAGE = 'data: {"choices": [], "usage": {"completion_tokens": 2}}'
ENDING = [chunk(delta={}, finish_reason="stop"), USAGE, "data: [DONE]"]


def test_a_stream_is_the_answer_it_would_have_been_and_tells_when_its_first_text_came() -> None:
    times = iter([5.0, 6.0])
    lines = [
        ": a comment keeps the connection",
        chunk(delta={"role": "assistant", "content": ""}),  # an opening is no token
        "",
        chunk(delta={"content": "Hel"}),
        chunk(delta={"content": "lo"}),
        *ENDING,
    ]
    answer, first = joined(lines, lambda: next(times))
    assert answer["choices"][0] == {"message": {"content": "Hello"}, "finish_reason": "stop"}
    assert answer["usage"] == {"completion_tokens": 2}
    assert first == 5.0


def test_an_answer_without_text_has_no_first_token() -> None:
    answer, first = joined(ENDING, lambda: 1.0)
    assert answer["choices"][0]["message"]["content"] == ""
    assert first is None


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([chunk(delta={"content": "Hel"})], "ended before it was done"),
        ([], "ended before it was done"),
        (["data: {half"], "not JSON"),
        (['data: {"error": {"message": "deadline"}}'], "ended with an error.*deadline"),
        (["data: 7"], "ended with an error"),
    ],
    ids=["cut off", "empty", "no JSON", "error", "no object"],
)
def test_a_stream_that_is_no_answer_is_a_fault_with_the_reason(lines: list[str], why: str) -> None:
    with pytest.raises(StreamError, match=why):
        joined(lines, lambda: 0.0)
