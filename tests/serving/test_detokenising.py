"""Text from tokens as they come: whole characters, exact stops, the same however they are cut."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from serving.detokenising import REPLACEMENT, CompletionText
from serving.text import Text

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


@given(ids=st.lists(st.integers(4, 299), max_size=40), stops=st.lists(WORDS.filter(bool)))
def test_every_character_is_counted_when_it_is_decoded_whatever_is_held_back(
    text: Text, ids: list[int], stops: list[str]
) -> None:
    completion = text.completion(stops)
    for token in ids:
        completion.push([token])
        if completion.stopped:
            return
        sure = text.decode(ids[: completion.tokens]).rstrip(REPLACEMENT)
        assert completion.decoded >= len(sure)
    completion.finish()
    assert completion.decoded == len(text.decode(ids))


def test_bytes_that_are_no_character_are_shown_soon_and_each_costs_the_same(text: Text) -> None:
    (half,) = (one for one in range(300) if text.token(one)[1] == b"\xe2")
    seen: list[int] = []

    def decode(ids: Sequence[int]) -> str:
        seen.append(len(ids))
        return text.decode(ids)

    completion = CompletionText(decode)
    shown = "".join(completion.push([half]) for _ in range(2000))
    assert 1990 <= len(shown) <= 2000
    assert shown + completion.finish() == REPLACEMENT * 2000
    assert max(seen) < 20
    assert len(seen) <= 3 * 2000


def test_tokens_without_a_text_cost_no_more_than_others(text: Text) -> None:
    seen: list[int] = []

    def decode(ids: Sequence[int]) -> str:
        seen.append(len(ids))
        return text.decode(ids)

    completion = CompletionText(decode)
    silent = [text.tokenizer.convert_tokens_to_ids("<|user|>")] * 500
    said = completion.push([*text.encode("fox"), *silent, *text.encode(" the fox")])
    assert said + completion.finish() == "fox the fox"
    assert max(seen) < 20


def fallback() -> Tokenizer:
    """A tokenizer of Llama's kind: words begin with a mark, other bytes are tokens of their own."""
    table = {f"<0x{byte:02X}>": byte for byte in range(256)}
    table |= {"\u2581the": 256, "\u2581fox": 257, "a": 258}
    made = Tokenizer(models.BPE(table, [], byte_fallback=True, unk_token="<0x00>"))
    parts = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    made.decoder = decoders.Sequence([*parts, decoders.Strip(" ", 1, 0)])
    return made


@pytest.mark.parametrize(
    ("ids", "wanted"),
    [
        ([256, *"\u20ac".encode(), 257], "the\u20ac fox"),
        ([256, *"\u20ac".encode(), 0xFF, 258], "the\u20ac\ufffda"),
        ([*"\U0001f642".encode(), 257], "\U0001f642 fox"),
        ([256, *[0xFF] * 20, 257], "the" + REPLACEMENT * 20 + " fox"),
        ([256, *[0xFF] * 20, *"\u20ac".encode(), 258], "the" + REPLACEMENT * 20 + "\u20aca"),
        ([256, 0xE2, 0x82], "the" + REPLACEMENT * 2),
    ],
)
def test_bytes_that_are_tokens_of_their_own_become_characters(ids: list[int], wanted: str) -> None:
    rust = fallback()
    completion = CompletionText(lambda some: str(rust.decode(list(some))))
    assert "".join(completion.push([one]) for one in ids) + completion.finish() == wanted


def test_a_stop_string_counts_from_the_token_on_that_completes_it_after_the_least(
    text: Text,
) -> None:
    ids = text.encode("xyxyxyxy")
    assert len(ids) == 8
    for least in range(8):
        completion = text.completion(["xy"], min_tokens=least)
        shown = "".join(completion.push([one]) for one in ids)
        assert completion.tokens == 2 * (least // 2 + 1)  # the first "xy" that ends after them
        assert shown == "xy" * (least // 2)


def test_a_stop_string_inside_what_another_one_holds_back_does_not_count_later(text: Text) -> None:
    completion = text.completion(["xyz", "y"], min_tokens=2)
    assert completion.push(text.encode("xya")) + completion.finish() == "xya"
