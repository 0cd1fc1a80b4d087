"""Compares an answer with plain decoding's answer to the same prompt.

A lossless sampler says what plain decoding says, except where rounding decides: in bf16 the same
position computed in a different shape may rank two nearly equal tokens the other way (about 1 % of
positions), and from there on the texts part. So what is looked at is the place where they part.
Knows two answers; whether a difference is allowed is for the gate.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

from evaluation.client import Answer, Token


@dataclass(frozen=True, slots=True)
class Parity:
    """How one answer relates to plain decoding's."""

    equal: bool  # same tokens (same text where tokens are unknown) and same ending
    position: int | None  # index of the first token that differs; None: equal, or unknown
    gap: float | None  # nats by which plain preferred its own token there to the one chosen;
    # None where plain did not rank the chosen token among its likeliest at all
    rouge_l: float  # of the two texts, 0 to 1


def compare(answer: Answer, plain: Answer, *, rouge_l: float) -> Parity:
    """Where `answer` parts from `plain`. Tokens are compared where both have log-probabilities."""
    if answer.text == plain.text and answer.outcome == plain.outcome:
        return Parity(True, None, None, rouge_l)
    if not (answer.tokens and plain.tokens):
        return Parity(False, None, None, rouge_l)
    for position, (ours, theirs) in enumerate(zip_longest(answer.tokens, plain.tokens)):
        if ours is None:
            ended_rightly = answer.outcome == "stop"  # it chose the end, which is a token unseen
            return Parity(False, position, theirs.gap if ended_rightly else None, rouge_l)
        if theirs is None:
            ended_rightly = plain.outcome == "stop"
            return Parity(False, position, ours.gap if ended_rightly else None, rouge_l)
        if ours.token != theirs.token:
            return Parity(False, position, _preference(theirs, ours.token), rouge_l)
    # The same tokens and yet another text or another ending: no rounding does that.
    return Parity(False, len(plain.tokens), None, rouge_l)


def _preference(plain: Token, chosen: str) -> float | None:
    """How much plain preferred its likeliest token to `chosen`; the top-two gap if second."""
    ranked = dict(plain.top)
    return plain.top[0][1] - ranked[chosen] if chosen in ranked else None
