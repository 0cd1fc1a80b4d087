"""The sampling parameters of a request body, under OpenAI's and vLLM's names.

Pure: what was said becomes keyword arguments of `Sampling`; what was not said the release decides.
Knows no tokenizer: the engine checks token ids against the token table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serving.fields import BadRequest, Number, Parameter, Schema, Whole, kind, refuse

LARGEST_SEED = 2**63 - 1
MOST_TOKENS = 2**31
MOST_BIASES = 1024  # OpenAI takes 300
LARGEST_BIAS = 100


@dataclass(frozen=True, slots=True)
class TokenIds:
    """A list of token ids."""

    least: int = 0

    def read(self, value: Any, name: str) -> frozenset[int]:
        if not isinstance(value, list):
            refuse(name, value, "a list of token ids")
        if odd := [one for one in value if not _is_token(one)]:
            shown = kind(odd[0]) if isinstance(odd[0], str | list | dict) else f"{odd[0]!r:.40}"
            raise BadRequest(
                f"{name}: got {shown} in the list, wanted token ids from 0, below {MOST_TOKENS}",
                name,
            )
        if len(value) < self.least:
            refuse(name, value, f"at least {self.least} token id, or nothing could be emitted")
        return frozenset(value)

    def schema(self) -> Schema:
        return {
            "type": "array",
            "items": {"type": "integer", "minimum": 0, "exclusiveMaximum": MOST_TOKENS},
            "minItems": self.least,
        }


@dataclass(frozen=True, slots=True)
class Biases:
    """{"token id": bias}, as OpenAI writes it: ids as JSON's keys are texts."""

    def read(self, value: Any, name: str) -> tuple[tuple[int, float], ...]:
        if not isinstance(value, dict) or len(value) > MOST_BIASES:
            refuse(name, value, f"an object of at most {MOST_BIASES} token ids and biases")
        biases = []
        for key, bias in value.items():
            # One way to write each id, or the same token could be there twice.
            if not (key.isascii() and key.isdigit() and len(key) < 11 and str(int(key)) == key):
                raise BadRequest(f"{name}: got the key {ascii(key[:20])}, wanted a token id", name)
            if not _is_token(int(key)):
                refuse(name, int(key), f"token ids below {MOST_TOKENS}")
            biases.append((int(key), Number(-LARGEST_BIAS, LARGEST_BIAS).read(bias, name)))
        return tuple(sorted(biases))

    def schema(self) -> Schema:
        return {
            "type": "object",
            "propertyNames": {"pattern": "^(0|[1-9][0-9]{0,8})$"},
            "additionalProperties": Number(-LARGEST_BIAS, LARGEST_BIAS).schema(),
            "maxProperties": MOST_BIASES,
        }


SAMPLING: Mapping[str, Parameter] = {
    "temperature": Number(0, 2),
    "top_p": Number(0, 1, above=True),
    "top_k": Whole(-1, MOST_TOKENS),  # 0 and, as in vLLM, -1 keep all
    "min_p": Number(0, 1),
    "repetition_penalty": Number(0.01, 100),
    "presence_penalty": Number(-2, 2),
    "frequency_penalty": Number(-2, 2),
    "logit_bias": Biases(),
    "allowed_token_ids": TokenIds(least=1),
    "banned_token_ids": TokenIds(),
    "min_tokens": Whole(0, MOST_TOKENS),
    "seed": Whole(-LARGEST_SEED - 1, LARGEST_SEED),
}
NAMES = {"allowed_token_ids": "allowed", "banned_token_ids": "banned"}  # what Sampling calls them


def sampling_said(said: Mapping[str, Any]) -> dict[str, Any]:
    """What of `Sampling` was asked for, from what `SAMPLING` has read."""
    found = {NAMES.get(name, name): said[name] for name in SAMPLING if name in said}
    if "top_k" in found:
        found["top_k"] = max(found["top_k"], 0)
    return found


def _is_token(value: object) -> bool:
    return type(value) is int and 0 <= value < MOST_TOKENS
