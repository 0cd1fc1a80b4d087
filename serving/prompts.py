"""The prompts of a completion: one or several, each a text or a list of token ids.

Pure. Which ids there are, the tokenizer says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from serving.fields import BadRequest, Schema, sound

MOST_PROMPTS = 128  # a request
Prompt = str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Prompts:
    most_tokens: int  # of one prompt; more cannot fit whatever they are

    def read(self, value: Any, name: str) -> tuple[Prompt, ...]:
        """One prompt in OpenAI's four ways of writing one or several."""
        if isinstance(value, list) and value and isinstance(value[0], str | list):
            if len(value) > MOST_PROMPTS:
                raise _refused(name, f"got {len(value)} prompts, wanted {MOST_PROMPTS} at most")
            return tuple(self._one(one, name) for one in value)
        return (self._one(value, name),)

    def schema(self) -> Schema:
        text = {"type": "string", "minLength": 1}
        ids = {
            "type": "array",
            "items": {"type": "integer", "minimum": 0, "exclusiveMaximum": 2**31},
            "minItems": 1,
            "maxItems": self.most_tokens,
        }
        several = {"type": "array", "minItems": 1, "maxItems": MOST_PROMPTS}
        return {"anyOf": [text, ids, {**several, "items": {"anyOf": [text, ids]}}]}

    def _one(self, value: Any, name: str) -> Prompt:
        if isinstance(value, str) and value:
            return sound(value, name)
        if isinstance(value, list) and value:
            if len(value) > self.most_tokens:
                raise BadRequest(
                    f"{name}: got {len(value)} token ids, wanted {self.most_tokens} at most",
                    name,
                    code="context_length_exceeded",
                )
            if all(type(one) is int and 0 <= one < 2**31 for one in value):
                return tuple(value)
        raise _refused(name, "wanted text, a list of token ids, or a list of these; none empty")


def _refused(name: str, wanted: str) -> BadRequest:
    return BadRequest(f"{name}: {wanted}", name)
