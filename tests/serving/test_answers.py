"""What a client is told of an answer: pieces, chunks, log-probabilities, what it cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.answers import Answer
from serving.bodies import Ask, read_chat, read_completion
from serving.choices import Choice, Piece
from serving.coalescing import Coalescing
from serving.text import Text
from serving.tickets import Group, Ticket
from serving.token_logprobs import Entry, chat_logprobs, completion_logprobs
from serving.usage import usage
from speculation.records import Counts
from speculation.sequence import Event, Request, TokenLogprobs
from tests.serving.fakes import FakePair

WORDS = "the quick brown fox é🙂 jumps"


def asked(**more: Any) -> Ask:
    return read_completion({"prompt": "x", "logprobs": 1, **more})


def events(ids: Sequence[int], cuts: Sequence[int], outcome: str = "stop") -> list[Event]:
    """The tokens in blocks that end at `cuts`; the last one says that it is over."""
    ends = sorted({*(cut for cut in cuts if 0 < cut < len(ids)), len(ids)})
    starts = [0, *ends[:-1]]
    found = tuple(TokenLogprobs(-1.0, ((one, -1.0),)) for one in ids)
    return [
        Event("r", tuple(ids[a:b]), found[a:b], outcome if b == len(ids) else None)
        for a, b in zip(starts, ends, strict=True)
    ]


def group(text: Text, choices: int, prompts: Sequence[int] = (5,)) -> Group:
    """Of prompts with so many tokens, each to be answered so often."""
    pair = FakePair(text=text).loaded
    requests = [
        Request(f"r{place}-{choice}", (9,) * length, 8)
        for place, length in enumerate(prompts)
        for choice in range(choices)
    ]
    tickets = tuple(Ticket(one, pair, started=1.0, arrived=0.0) for one in requests)
    return Group(tickets, until=math.inf, cancel=lambda ticket: None)


@given(cuts=st.lists(st.integers(1, 40), max_size=10), size=st.integers(1, 7))
@settings(max_examples=40)
@pytest.mark.parametrize("stop", [(), ("jum",), ("zz",)])
def test_each_chunk_holds_as_many_tokens_however_the_blocks_came(
    text: Text, stop: tuple[str, ...], cuts: list[int], size: int
) -> None:
    ids = text.encode(WORDS)
    if stop == ("jum",):  # the engine gives no token after the one that completes it
        ids = ids[: text.completion(stop).ends(ids)]
    ask = asked(stop=list(stop))
    choice, chunks = Choice.to(ask, text), Coalescing(size)
    sent: list[Piece] = []
    for event in events(ids, cuts):
        sent += chunks.take(choice.take(event), last=event.outcome is not None)
    assert [piece.tokens for piece in sent[:-1]] == [size] * (len(sent) - 1)
    assert 0 <= sent[-1].tokens <= size
    assert "".join(piece.text for piece in sent) == WORDS.partition("jum" if stop else "\0")[0] or (
        stop == ("zz",)
    )
    assert sum(len(piece.entries) for piece in sent) == len(ids)
    # What is sent is the same whatever the blocks were: they cannot be told from outside.
    alone = Choice.to(ask, text)
    at_once = [piece for event in events(ids, []) for piece in alone.take(event)]
    assert sent == Coalescing(size).take(at_once, last=True)


def test_as_they_come_a_chunk_is_what_an_event_shows_and_nothing_is_no_chunk(text: Text) -> None:
    choice, chunks = Choice.to(read_completion({"prompt": "x"}), text), Coalescing(0)
    face = text.encode("🙂")[0]  # a quarter of it
    assert chunks.take(choice.take(Event("r", (face,))), last=False) == []
    (piece,) = chunks.take(choice.take(Event("r", text.encode("a b"))), last=False)
    assert piece.tokens == len(text.encode("a b"))
    assert piece.text.endswith("a b")


def test_offsets_count_characters_that_are_held_back(text: Text) -> None:
    ids = text.encode("abxyabxy")
    choice = Choice.to(asked(stop="xyz"), text)
    pieces = [piece for event in events(ids, [1, 4]) for piece in choice.take(event)]
    assert [piece.entries[0].start for piece in pieces] == list(range(8))
    assert "".join(piece.text for piece in pieces) == "abxyabxy"
    assert pieces[2].text == ""  # it may begin the stop string


def test_the_offset_of_a_half_character_is_where_the_character_begins(text: Text) -> None:
    ids = text.encode("a🙂b")
    choice = Choice.to(asked(), text)
    pieces = [piece for event in events(ids, []) for piece in choice.take(event)]
    starts = [piece.entries[0].start for piece in pieces]
    assert starts == [0, *[1] * (len(ids) - 2), 2]


def entry(text: Text, token: int, top: Sequence[int], most: int) -> Entry:
    likeliest = tuple((one, -float(place)) for place, one in enumerate(top))
    return Entry.of(text, token, TokenLogprobs(-9.5, likeliest), most, 0)


def test_tokens_that_are_no_text_are_told_apart_by_their_bytes(text: Text) -> None:
    halves = [one for one in range(300) if text.token(one)[1] in (b"\xe2", b"\x82", b"\xac")]
    (letter,) = text.encode("a")
    told = completion_logprobs([entry(text, letter, halves, 3)])
    assert set(told["top_logprobs"][0]) == {"bytes:\\xe2", "bytes:\\x82", "bytes:\\xac", "a"}
    assert told["tokens"] == ["a"]
    (chat,) = chat_logprobs([entry(text, halves[0], halves, 3)])["content"]
    assert chat["token"] == "bytes:" + "".join(f"\\x{byte:02x}" for byte in chat["bytes"])
    assert len({one["token"] for one in chat["top_logprobs"]}) == 3


def test_the_emitted_token_is_among_a_completions_likeliest_and_only_there(text: Text) -> None:
    a, b, c = (text.encode(letter)[0] for letter in "abc")
    told = completion_logprobs([entry(text, c, [a, b], 1), entry(text, a, [a, b], 1)])
    assert told["top_logprobs"] == [{"a": 0.0, "c": -9.5}, {"a": 0.0}]
    assert completion_logprobs([entry(text, c, [a], 0)])["top_logprobs"] == [{"c": -9.5}]
    (chat,) = chat_logprobs([entry(text, c, [a, b], 1)])["content"]
    assert [one["token"] for one in chat["top_logprobs"]] == ["a"]


def test_what_cannot_be_emitted_has_a_number_that_json_has(text: Text) -> None:
    found = TokenLogprobs(-math.inf, ((5, -math.inf),))
    (chat,) = chat_logprobs([Entry.of(text, 5, found, 1, 0)])["content"]
    assert chat["logprob"] == chat["top_logprobs"][0]["logprob"] == -9999.0


def test_a_prompt_is_counted_once_and_what_was_done_for_all_its_answers(text: Text) -> None:
    made = group(text, 2, prompts=(5, 7))
    lasts = [
        Event(
            "r",
            (),
            (),
            "length",
            Counts(
                rounds=n,
                plain_forwards=1,
                drafted=4 * n,
                emitted=3,
                judged_per_position=(n,) * n,
                accepted_per_position=(1,) * n,
            ),
            cached=cached,
            prefill_seconds=0.5 * n,
            decode_seconds=float(n),
        )
        for n, cached in ((1, 0), (2, 4), (3, 4), (4, 6))
    ]
    made.tickets[2].waiting_seconds = 9.0
    told = usage(made.tickets, lasts, 2)
    assert told["prompt_tokens"] == 12
    assert told["completion_tokens"] == 12
    assert told["total_tokens"] == 24
    assert told["prompt_tokens_details"] == {
        "cached_tokens": 4
    }  # none of the first, four of the second
    counts = told["paceline"]
    assert (counts["rounds"], counts["plain_forwards"], counts["drafted"]) == (10, 4, 40)
    assert counts["judged_per_position"] == [10, 9, 7, 4]
    assert counts["accepted_per_position"] == [4, 3, 2, 1]
    assert counts["accepted"] == 10
    assert (counts["queue_seconds"], counts["prefill_seconds"]) == (9.0, 2.0)
    assert counts["decode_seconds"] == 4.0


def some(ids: Sequence[int]) -> Event:
    return Event("r", tuple(ids))


def done(ids: Sequence[int], outcome: str, *, emitted: int) -> Event:
    return Event("r", tuple(ids), (), outcome, Counts(plain_forwards=emitted, emitted=emitted))


@pytest.mark.parametrize("chat", [True, False])
def test_choices_are_told_apart_by_their_index_whatever_comes_first(text: Text, chat: bool) -> None:
    body = {"n": 2, "stream": True, "stream_options": {"include_usage": True}}
    ask = (
        read_chat({"messages": [{"role": "user", "content": "x"}], **body})
        if chat
        else read_completion({"prompt": "x", **body})
    )
    answer = Answer.to(ask, group(text, 2), "toy")
    sent = answer.opening()
    for index, event in (
        (1, some(text.encode("the"))),
        (0, done(text.encode("fox"), "stop", emitted=3)),
        (1, done(text.encode(" dog"), "length", emitted=7)),
    ):
        sent += answer.chunks(index, Coalescing(0).take(answer.take(index, event), last=True))
    said, finish = ["", ""], ["", ""]
    for chunk in sent:
        (choice,) = chunk["choices"]
        assert chunk["usage"] is None
        assert chunk["id"] == "r0-0"
        text_of = choice["delta"].get("content", "") if chat else choice["text"]
        said[choice["index"]] += text_of
        finish[choice["index"]] += choice["finish_reason"] or ""
    assert said == ["fox", "the dog"]
    assert finish == ["stop", "length"]
    assert answer.closing()["choices"] == []
    assert answer.closing()["usage"]["completion_tokens"] == 10


def test_an_answer_names_the_model_that_was_asked_for(text: Text) -> None:
    assert Answer.to(asked(model="adapted"), group(text, 1), "toy").model == "adapted"
    assert Answer.to(asked(), group(text, 1), "toy").model == "toy"
