"""Every field of the bodies that clients send, each with what reads and describes it.

Pure tables. The readers of bodies and the OpenAPI document both go by them, so that neither can
say what the other does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from serving.fields import (
    Flag,
    Label,
    Neutral,
    Parameter,
    Schema,
    Whole,
    Words,
    object_of,
    read_fields,
    refuse,
    sound,
)
from serving.messages import Messages
from serving.prompts import Prompts
from serving.sampling_fields import MOST_TOKENS, SAMPLING, TokenIds
from serving.settings import MOST_DRAFTED

MOST_CHOICES = 128  # answers a request, over all its prompts; OpenAI's bound of n
MOST_STOPS = 16
MOST_TOP_LOGPROBS = 20

# Parameters of OpenAI's that are not supported, with the values that change nothing.
NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "store": (False,),
    "service_tier": ("auto", "default"),
}
LABELS = ("user", "metadata", "safety_identifier")


@dataclass(frozen=True, slots=True)
class Stops:
    """One stop string or several."""

    longest: int = 1000  # characters of each

    def read(self, value: Any, name: str) -> tuple[str, ...]:
        stops = [value] if isinstance(value, str) else value
        if not isinstance(stops, list) or len(stops) > MOST_STOPS:
            refuse(name, value, f"a text or a list of at most {MOST_STOPS}")
        for one in stops:
            if not isinstance(one, str) or not 0 < len(one) <= self.longest:
                refuse(name, one, f"texts of 1 to {self.longest} characters")
        return tuple(sound(one, name) for one in stops)

    def schema(self) -> Schema:
        text = {"type": "string", "minLength": 1, "maxLength": self.longest}
        return {"anyOf": [text, {"type": "array", "items": text, "maxItems": MOST_STOPS}]}


@dataclass(frozen=True)
class Inner:
    """An object of its own parameters."""

    parameters: Mapping[str, Parameter]

    def read(self, value: Any, name: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            refuse(name, value, "an object")
        return read_fields(value, self.parameters, f"{name}.")

    def schema(self) -> Schema:
        return object_of(self.parameters)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a server takes at most of what is bounded by what it is."""

    messages: int = 512
    context: int = 2**20  # tokens


BOUNDS = Bounds()

SHARED: Mapping[str, Parameter] = {
    "model": Words(),
    "max_tokens": Whole(1, MOST_TOKENS),
    "n": Whole(1, MOST_CHOICES),
    "stop": Stops(),
    "stop_token_ids": TokenIds(),
    "stream": Flag(),
    "stream_options": Inner(
        {"include_usage": Flag(), "include_obfuscation": Neutral((False,))},
    ),
    # A trial's: which of its drafts is to be measured, and with which K.
    "paceline": Inner(
        {"arm": Words(), "draft_len": Whole(0, MOST_DRAFTED), "adaptive": Flag()},
    ),
    **SAMPLING,
    **{name: Neutral(values) for name, values in NEUTRAL.items()},
    **{name: Label() for name in LABELS},
}


@lru_cache(maxsize=8)
def chat_parameters(bounds: Bounds = BOUNDS) -> Mapping[str, Parameter]:
    """Every field of POST /v1/chat/completions."""
    return {
        "messages": Messages(bounds.messages),
        "max_completion_tokens": Whole(1, MOST_TOKENS),
        "logprobs": Flag(),
        "top_logprobs": Whole(0, MOST_TOP_LOGPROBS),
        **SHARED,
    }


@lru_cache(maxsize=8)
def completion_parameters(bounds: Bounds = BOUNDS) -> Mapping[str, Parameter]:
    """Every field of POST /v1/completions."""
    return {
        "prompt": Prompts(bounds.context),
        "logprobs": Whole(0, MOST_TOP_LOGPROBS),
        **SHARED,
    }
