"""Text from tokens: whole characters, exact stops, the same however the tokens come."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.text import REPLACEMENT, TemplateError, Text

WORDS = st.text(
    alphabet=st.sampled_from(
        [*"abc dé", "ß", "日", "本", "🙂", "👩‍🚀"[0], "\u0301", REPLACEMENT, "\n"]
    ),
    max_size=30,
)
CUTS = st.lists(st.integers(0, 60), max_size=8)


def blocks(ids: tuple[int, ...], cuts: list[int]) -> list[tuple[int, ...]]:
    places = sorted({0, len(ids), *[cut for cut in cuts if cut < len(ids)]})
    return [ids[start:end] for start, end in pairwise(places)]


@given(words=WORDS, cuts=CUTS)
def test_the_pieces_of_a_text_make_the_text_however_it_is_cut(
    text: Text, words: str, cuts: list[int]
) -> None:
    completion = text.completion()
    pieces = [completion.push(block) for block in blocks(text.encode(words), cuts)]
    assert "".join([*pieces, completion.finish()]) == words


@given(words=WORDS.filter(lambda words: REPLACEMENT not in words), cuts=CUTS)
def test_no_piece_holds_half_a_character(text: Text, words: str, cuts: list[int]) -> None:
    completion = text.completion()
    for block in blocks(text.encode(words), cuts):
        assert REPLACEMENT not in completion.push(block)


@given(ids=st.lists(st.integers(4, 299), max_size=30), cuts=CUTS)
def test_any_tokens_at_all_give_what_the_tokenizer_says_of_them(
    text: Text, ids: list[int], cuts: list[int]
) -> None:
    completion = text.completion()
    pieces = [completion.push(block) for block in blocks(tuple(ids), cuts)]
    assert "".join([*pieces, completion.finish()]) == text.decode(ids)


@given(
    words=WORDS.filter(lambda words: REPLACEMENT not in words),
    stops=st.lists(WORDS.filter(bool), min_size=1, max_size=3),
    cuts=CUTS,
)
@settings(max_examples=200)
def test_a_stop_string_cuts_at_its_first_place_wherever_it_lies(
    text: Text, words: str, stops: list[str], cuts: list[int]
) -> None:
    ids = text.encode(words)
    completion = text.completion(stops)
    shown = "".join(completion.push(block) for block in blocks(ids, cuts))
    if completion.stopped:
        # In token order: the shortest prefix of the tokens that holds a stop decides.
        for count in range(1, completion.tokens):
            settled = text.decode(ids[:count]).rstrip(REPLACEMENT)
            assert not any(stop in settled for stop in stops)
        until = text.decode(ids[: completion.tokens])
        assert shown == until[: min(p for s in stops if (p := until.find(s)) >= 0)]
        assert completion.finish() == ""
    else:
        assert not any(stop in words for stop in stops)
        assert shown + completion.finish() == words


@given(words=WORDS, stops=st.lists(WORDS.filter(bool), min_size=1, max_size=2), cuts=CUTS)
def test_the_engine_is_told_the_same_end_as_the_text_has(
    text: Text, words: str, stops: list[str], cuts: list[int]
) -> None:
    ids = text.encode(words)
    told, whole = text.completion(stops), text.completion(stops)
    kept = None
    emitted: list[int] = []
    for block in blocks(ids, cuts):
        emitted += block
        if (kept := told.ends(emitted)) is not None:
            break
    whole.push(ids)
    assert kept == (whole.tokens if whole.stopped else None)


def test_a_stop_string_may_end_inside_a_token(text: Text) -> None:
    ids = text.encode("the quick brown fox")
    assert len(ids) < len("the quick brown fox") / 2  # the words are tokens of the toy's table
    completion = text.completion(["qui"])
    assert completion.push(ids) == "the "
    assert completion.tokens == next(n for n in range(len(ids)) if "qui" in text.decode(ids[:n]))


def test_what_may_begin_a_stop_string_is_held_back_and_given_in_the_end(text: Text) -> None:
    completion = text.completion(["xyz"])
    assert completion.push(text.encode("axy")) == "a"
    assert completion.push(text.encode("xy")) == "xy"
    assert completion.finish() == "xy"


def test_the_token_that_ends_a_turn_has_no_text_even_if_it_is_an_ordinary_one(text: Text) -> None:
    (letter,) = text.encode("Q")
    ending = Text(text.tokenizer, frozenset({letter}), {}).completion()
    assert ending.push([letter, *text.encode("a")]) == "a"
    assert ending.tokens == 2


@given(words=WORDS)
def test_the_bytes_of_tokens_make_the_bytes_of_their_text(text: Text, words: str) -> None:
    assert b"".join(text.token(one)[1] for one in text.encode(words)) == words.encode()


def test_a_conversation_goes_through_the_targets_own_template(text: Text) -> None:
    ids = text.encode_chat([{"role": "user", "content": "the fox"}])
    wanted = "<|user|>the fox<|end|><|assistant|>"
    assert ids == tuple(text.tokenizer.backend_tokenizer.encode(wanted).ids)


def test_a_template_that_refuses_is_said_so_without_the_messages(text: Text) -> None:
    tokenizer = text.tokenizer.__class__(
        tokenizer_object=text.tokenizer.backend_tokenizer, eos_token="<|end|>"
    )
    strict = Text(tokenizer, frozenset(), {})
    with pytest.raises(TemplateError, match="no chat template"):
        strict.encode_chat([{"role": "user", "content": "secret"}])
    tokenizer.chat_template = "{{ raise_exception('no ' + messages[0]['content']) }}"
    with pytest.raises(TemplateError, match="refuses") as caught:
        strict.encode_chat([{"role": "user", "content": "secret"}])
    assert "secret" not in str(caught.value)
