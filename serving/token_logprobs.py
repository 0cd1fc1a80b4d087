"""Log-probabilities of an answer's tokens, in the shapes of OpenAI's two APIs.

Pure. Knows the names and bytes of tokens; nothing of how the tokens were drawn. A token that is
part of a character has no text: it is named by its bytes, as OpenAI names it, so that two of them
are told apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from serving.text import Text
from speculation.sequence import TokenLogprobs

LEAST_LOGPROB = -9999.0  # JSON has no minus infinity; OpenAI writes this


@dataclass(frozen=True, slots=True)
class Named:
    """One token with its log-probability."""

    name: str
    raw: bytes
    logprob: float

    @classmethod
    def of(cls, text: Text, token: int, logprob: float) -> Named:
        name, raw = text.token(token)
        if name.encode() != raw:
            name = "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
        return cls(name, raw, max(logprob, LEAST_LOGPROB))


@dataclass(frozen=True, slots=True)
class Entry:
    """An emitted token beside the likeliest ones at its place."""

    emitted: Named
    top: tuple[Named, ...]  # likeliest first
    start: int  # characters of the answer before it

    @classmethod
    def of(cls, text: Text, token: int, found: TokenLogprobs, top: int, start: int) -> Entry:
        likeliest = tuple(Named.of(text, *one) for one in found.top[:top])
        return cls(Named.of(text, token, found.logprob), likeliest, start)


def chat_logprobs(entries: Sequence[Entry]) -> dict[str, Any]:
    """As a chat's choice has them."""
    content = [
        {**_described(entry.emitted), "top_logprobs": [_described(one) for one in entry.top]}
        for entry in entries
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(entries: Sequence[Entry]) -> dict[str, Any]:
    """As a completion's choice has them. The emitted token is always among the likeliest, if only
    as the last of them."""
    return {
        "tokens": [entry.emitted.name for entry in entries],
        "token_logprobs": [entry.emitted.logprob for entry in entries],
        "top_logprobs": [_by_name((*entry.top, entry.emitted)) for entry in entries],
        "text_offset": [entry.start for entry in entries],
    }


def _described(token: Named) -> dict[str, Any]:
    return {"token": token.name, "bytes": list(token.raw), "logprob": token.logprob}


def _by_name(tokens: Sequence[Named]) -> dict[str, float]:
    """Of several tokens with one text the likeliest."""
    named: dict[str, float] = {}
    for token in tokens:
        named.setdefault(token.name, token.logprob)
    return named
