"""The sampling parameters of a request body, under OpenAI's and vLLM's names.

Pure: fields in, keyword arguments of `Sampling` out, only of what was said; what was not said the
release decides. Knows no tokenizer: the engine checks token ids against the token table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serving.fields import BadRequest, number, refuse, whole

LARGEST_SEED = 2**63 - 1
MOST_TOKENS = 2**31
MOST_BIASES = 1024  # OpenAI takes 300
SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "allowed_token_ids",
    "banned_token_ids",
    "min_tokens",
    "seed",
)


def read_sampling(said: Mapping[str, Any]) -> dict[str, Any]:
    """What of `Sampling` a client asked for. Raises BadRequest."""
    top_k = whole(said, "top_k", -1, MOST_TOKENS)
    found: dict[str, Any] = {
        "temperature": number(said, "temperature", 0.0, 2.0),
        "top_p": number(said, "top_p", 0.0, 1.0, above=True),
        "top_k": None if top_k is None else max(top_k, 0),  # -1 keeps all, as in vLLM
        "min_p": number(said, "min_p", 0.0, 1.0),
        "repetition_penalty": number(said, "repetition_penalty", 0.01, 100.0),
        "presence_penalty": number(said, "presence_penalty", -2.0, 2.0),
        "frequency_penalty": number(said, "frequency_penalty", -2.0, 2.0),
        "logit_bias": _biases(said),
        "allowed": token_ids(said, "allowed_token_ids"),
        "banned": token_ids(said, "banned_token_ids"),
        "min_tokens": whole(said, "min_tokens", 0, MOST_TOKENS),
        "seed": whole(said, "seed", -LARGEST_SEED - 1, LARGEST_SEED),
    }
    return {name: value for name, value in found.items() if value is not None}


def token_ids(said: Mapping[str, Any], key: str) -> frozenset[int] | None:
    """A list of token ids; an empty one says nothing."""
    value = said.get(key)
    if value is None or value == []:
        return None
    if not isinstance(value, list) or not all(_is_token(one) for one in value):
        refuse(key, value, "a list of token ids")
    return frozenset(value)


def _biases(said: Mapping[str, Any]) -> tuple[tuple[int, float], ...] | None:
    """{"token id": bias}, as OpenAI writes it: ids as JSON's keys are texts."""
    value = said.get("logit_bias")
    if value is None or value == {}:
        return None
    if not isinstance(value, dict) or len(value) > MOST_BIASES:
        refuse("logit_bias", value, f"an object of at most {MOST_BIASES} token ids and biases")
    biases = []
    for key in value:
        if not (key.isascii() and key.isdigit() and len(key) < 11 and _is_token(int(key))):
            raise BadRequest(
                f"logit_bias: got the key {ascii(key[:20])}, wanted a token id", "logit_bias"
            )
        bias = number(value, key, -100.0, 100.0)
        if bias is None:
            raise BadRequest(f"logit_bias: token {key} has no bias", "logit_bias")
        biases.append((int(key), bias))
    return tuple(sorted(biases))


def _is_token(value: object) -> bool:
    return type(value) is int and 0 <= value < MOST_TOKENS
