"""Compares an answer with plain decoding's answer to the same prompt.

A lossless sampler says what plain decoding says, except where rounding decides: in bf16 the same
position computed in a different shape may rank two nearly equal tokens the other way (about 1 % of
positions), and from there on the texts part. So what is looked at is the place where they part.
A streamed answer has no tokens to compare; `compare_served` finds the place in plain's.
Knows answers; whether a difference is allowed is for the gate.
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


def compare_served(answer: Answer, plain: Answer, ranked: Answer, *, rouge_l: float) -> Parity:
    """Where a timed answer, which has no tokens, parts from `plain`, plain decoding's timed one.

    `ranked` is plain decoding's answer with log-probabilities: where the text leaves it, at a token
    that was nearly as likely there, rounding explains it, whatever way `plain` took.
    """
    if answer.text == plain.text and answer.outcome == plain.outcome:
        return Parity(True, None, None, rouge_l)
    if (answer.text, answer.outcome) == (ranked.text, ranked.outcome):
        place, _ = _place(plain, ranked)  # it is `plain` that leaves it
        return Parity(False, place or 0, 0.0, rouge_l)
    position, gap = _place(answer, ranked)
    return Parity(False, position, gap, rouge_l)


def _place(answer: Answer, ranked: Answer) -> tuple[int | None, float | None]:
    """The first token of `ranked` that the text does not have, and how much it was preferred to
    what the text has there; None where the tokens do not tell."""
    said, tokens = _bytes(answer.text), [bytes.fromhex(t.token) for t in ranked.tokens]
    if not b"".join(tokens).startswith(_bytes(ranked.text)):
        return None, None  # tokens that do not spell the text
    place = start = 0
    while place < len(tokens) and said.startswith(tokens[place], start):
        start += len(tokens[place])
        place += 1
        if start == len(said):
            break
    if start == len(said):
        ended_rightly = answer.outcome == "stop" and place < len(tokens)
        return place, ranked.tokens[place].gap if ended_rightly else None
    # Plain's token may begin the one that was chosen: " the" and " there".
    for index in (place, place - 1):
        if 0 <= index < len(tokens):
            least = 1 if index == place else len(tokens[index]) + 1
            begin = start if index == place else start - len(tokens[index])
            gap = _chosen(ranked.tokens[index], said[begin:], least)
            if gap is not None:
                return index, gap
    return place, None


def _chosen(token: Token, said: bytes, least: int) -> float | None:
    """How much the likeliest was preferred to the longest other token, of `least` bytes or more,
    that `said` begins with."""
    others = [
        (len(name), token.top[0][1] - logprob)
        for name, logprob in ((bytes.fromhex(name), logprob) for name, logprob in token.top)
        if len(name) >= least and name != bytes.fromhex(token.token) and said.startswith(name)
    ]
    return max(others)[1] if others else None


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _preference(plain: Token, chosen: str) -> float | None:
    """How much plain preferred its likeliest token to `chosen`; the top-two gap if second."""
    ranked = dict(plain.top)
    return plain.top[0][1] - ranked[chosen] if chosen in ranked else None
