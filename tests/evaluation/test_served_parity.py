"""Where a timed answer, a text without tokens, leaves plain decoding's."""

from __future__ import annotations

import pytest

from evaluation.client import Answer, Token
from evaluation.parity import compare_served
from speculation.records import Counts


def token(*ranked: tuple[str, float], chosen: str | None = None) -> Token:
    top = tuple((name.encode().hex(), logprob) for name, logprob in ranked)
    return Token((chosen or ranked[0][0]).encode().hex(), top)


def answer(text: str, *tokens: Token, outcome: str = "length") -> Answer:
    told = ("p", "r", "none", 4, text, outcome, tokens, Counts())
    return Answer(*told, 1, 0, len(tokens), 1.0, 0.0, 0.0, 1.0)


PLAIN = answer(
    "喜 the cat",
    token(("喜", -0.1), ("爱", -2.0)),
    token((" the", -0.7), (" there", -0.9), (" t", -3.0)),
    token((" cat", -0.5), (" dog", -0.5), ("<end>", -4.0)),
)


@pytest.mark.parametrize(
    ("text", "position", "gap"),
    [
        ("喜 the dog", 2, 0.0),
        ("爱 the cat", 0, 1.9),
        ("喜 there is", 1, 0.2),  # plain's " the" begins it
        ("喜 tea", 1, 2.3),
        ("喜 the bird", 2, None),  # not among the likeliest
        ("GARBAGE", 0, None),
        ("喜 the", 2, None),  # as many tokens, and yet less text
    ],
)
def test_a_text_is_placed_by_plain_decodings_tokens(
    text: str, position: int, gap: float | None
) -> None:
    found = compare_served(answer(text), answer("喜 the cat"), PLAIN, rouge_l=0.5)
    assert (found.equal, found.position) == (False, position)
    assert found.gap == pytest.approx(gap)


def test_it_is_equal_to_plains_timed_text_or_explained_by_its_batched_one() -> None:
    timed = answer("喜 the dog")
    assert compare_served(answer("喜 the dog"), timed, PLAIN, rouge_l=1.0).equal
    batched = compare_served(answer("喜 the cat"), timed, PLAIN, rouge_l=0.7)
    assert (batched.equal, batched.position, batched.gap) == (False, 2, 0.0)


def test_tokens_that_do_not_spell_the_text_explain_nothing() -> None:
    other = answer("another text", *PLAIN.tokens)
    found = compare_served(answer("x"), answer("y"), other, rouge_l=0.0)
    assert (found.position, found.gap) == (None, None)
