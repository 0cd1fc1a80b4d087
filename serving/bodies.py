"""Reads what a client sent: OpenAI request bodies into a plain record, or one clear refusal.

Pure: bytes in, `Ask` out or `BadRequest` raised. Knows nothing of tokens, models or HTTP. Nothing a
client writes is ever ignored: what is not understood, or not supported yet, is refused by name,
unless its value is the one that changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from serving.fields import BadRequest, boolean, kind, sound, text, whole
from serving.sampling_fields import SAMPLING, read_sampling, token_ids

MOST_STOPS = 16
MOST_TOP_LOGPROBS = 20

# Parameters of OpenAI's that are not supported, with the values that change nothing.
NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "n": (1,),
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
}
LABELS = ("user", "metadata", "safety_identifier")  # say who asks; they never change an answer
SHARED = (
    "model",
    "max_tokens",
    "stop",
    "stop_token_ids",
    "stream",
    "stream_options",
    "logprobs",
    "paceline",
    *SAMPLING,
)
CHAT = (*SHARED, "messages", "max_completion_tokens", "top_logprobs")
COMPLETION = (*SHARED, "prompt")
ROLES = ("system", "developer", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class Ask:
    """One request as its client meant it. None is: not said."""

    chat: bool
    model: str | None
    messages: tuple[Mapping[str, str], ...] = ()
    prompt: str | tuple[int, ...] = ""
    max_tokens: int | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)  # of Sampling's fields, those said
    stops: tuple[str, ...] = ()
    stop_ids: frozenset[int] = frozenset()
    stream: bool = False
    stream_usage: bool = False
    logprobs: bool = False
    top_logprobs: int = 0
    arm: str | None = None  # a trial's
    draft_len: int | None = None  # a trial's
    trial_field: bool = False  # `paceline` was in the body


def read_body(raw: bytes) -> dict[str, Any]:
    """The JSON object of a request body. Raises BadRequest."""
    try:
        body = json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise BadRequest("the body is not UTF-8") from None
    except RecursionError:
        raise BadRequest("the body is nested too deep") from None
    except ValueError as error:  # JSON's own, or an integer of thousands of digits
        where = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise BadRequest(f"the body is not JSON{where}") from None
    if not isinstance(body, dict):
        raise BadRequest(f"the body is a JSON {kind(body)}: wanted an object")
    return body


def read_chat(body: Mapping[str, Any]) -> Ask:
    """The body of POST /v1/chat/completions. Raises BadRequest."""
    said = _said(body, CHAT)
    messages = said.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages: wanted a list of at least one message", "messages")
    limits = {key: said[key] for key in ("max_tokens", "max_completion_tokens") if key in said}
    if len(limits) == 2 and len(set(limits.values())) > 1:
        raise BadRequest("max_tokens and max_completion_tokens differ: give one", "max_tokens")
    logprobs = boolean(said, "logprobs")
    top = whole(said, "top_logprobs", 0, MOST_TOP_LOGPROBS) or 0
    if top and not logprobs:
        raise BadRequest("top_logprobs needs logprobs: true", "top_logprobs")
    return Ask(
        chat=True,
        messages=tuple(_message(message, place) for place, message in enumerate(messages)),
        max_tokens=next((whole(said, key, 1, 2**31) for key in limits), None),
        logprobs=logprobs,
        top_logprobs=top,
        **_shared(said),
    )


def read_completion(body: Mapping[str, Any]) -> Ask:
    """The body of POST /v1/completions. Raises BadRequest."""
    said = _said(body, COMPLETION)
    top = whole(said, "logprobs", 0, MOST_TOP_LOGPROBS)
    return Ask(
        chat=False,
        prompt=_prompt(said.get("prompt")),
        max_tokens=whole(said, "max_tokens", 1, 2**31) or 16,  # OpenAI's default
        logprobs=top is not None,
        top_logprobs=top or 0,
        **_shared(said),
    )


def _said(body: Mapping[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    """What the body says beyond nulls; refuses what is unknown or not supported."""
    said = {}
    for key, value in body.items():
        if value is None or key in LABELS:
            continue
        if key in known:
            said[key] = value
        elif key not in NEUTRAL:
            raise BadRequest(f"unknown parameter {ascii(key[:80])}", ascii(key[:80])[1:-1])
        elif not any(type(value) is type(one) and value == one for one in _widened(NEUTRAL[key])):
            raise BadRequest(f"{key} is not supported yet: leave it out", key)
    return said


def _widened(values: tuple[object, ...]) -> tuple[object, ...]:
    """A whole number is as good written as 1.0; a boolean is no number."""
    numbers = [float(one) for one in values if isinstance(one, int) and not isinstance(one, bool)]
    return (*values, *numbers)


def _shared(said: Mapping[str, Any]) -> dict[str, Any]:
    stream = boolean(said, "stream")
    sampling, stops = read_sampling(said), _stops(said.get("stop"))
    if stops and sampling.get("min_tokens"):
        raise BadRequest("min_tokens with stop is not supported: give one of them", "min_tokens")
    arm, draft_len = _trial(said.get("paceline"))
    return {
        "model": text(said, "model"),
        "sampling": sampling,
        "stop_ids": token_ids(said, "stop_token_ids") or frozenset(),
        "stops": stops,
        "stream": stream,
        "stream_usage": _stream_usage(said.get("stream_options"), stream=stream),
        "arm": arm,
        "draft_len": draft_len,
        "trial_field": "paceline" in said,
    }


def _message(message: Any, place: int) -> Mapping[str, str]:
    name = f"messages[{place}]"
    if not isinstance(message, dict):
        raise BadRequest(f"{name}: wanted an object with role and content", name)
    if unknown := [key for key in message if key not in ("role", "content") and message[key]]:
        shown = ascii(unknown[0][:80])[1:-1]
        raise BadRequest(f"{name}.{shown} is not supported", f"{name}.{shown}")
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        raise BadRequest(f"{name}.role: wanted one of {', '.join(ROLES)}", f"{name}.role")
    if isinstance(content, list):
        content = "".join(_part(part, f"{name}.content[{i}]") for i, part in enumerate(content))
    if not isinstance(content, str):
        raise BadRequest(f"{name}.content: wanted text", f"{name}.content")
    return {"role": role, "content": sound(content, f"{name}.content")}


def _part(part: Any, name: str) -> str:
    if isinstance(part, dict) and set(part) == {"type", "text"} and part["type"] == "text":
        text = part["text"]
        if isinstance(text, str):
            return text
    raise BadRequest(f'{name}: wanted {{"type": "text", "text": "..."}}', name)


def _prompt(prompt: Any) -> str | tuple[int, ...]:
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        prompt = prompt[0]  # a list of one prompt
    if isinstance(prompt, str) and prompt:
        return sound(prompt, "prompt")
    if isinstance(prompt, list) and prompt:
        if all(type(one) is int and 0 <= one < 2**31 for one in prompt):
            return tuple(prompt)
        if all(isinstance(one, str | list) for one in prompt):
            raise BadRequest(f"{len(prompt)} prompts: one a request is supported", "prompt")
    raise BadRequest("prompt: wanted text or a list of token ids, not empty", "prompt")


def _stops(stop: Any) -> tuple[str, ...]:
    stops = [stop] if isinstance(stop, str) else ([] if stop is None else stop)
    if not isinstance(stops, list) or len(stops) > MOST_STOPS:
        raise BadRequest(f"stop: wanted a text or a list of at most {MOST_STOPS}", "stop")
    for one in stops:
        if not isinstance(one, str) or not 0 < len(one) <= 1000:
            raise BadRequest("stop: wanted texts of 1 to 1000 characters", "stop")
    return tuple(sound(one, "stop") for one in stops)


def _stream_usage(options: Any, *, stream: bool) -> bool:
    if options is None:
        return False
    if not stream:
        raise BadRequest("stream_options needs stream: true", "stream_options")
    if not isinstance(options, dict):
        raise BadRequest("stream_options: wanted an object", "stream_options")
    for key in options:
        if key == "include_obfuscation" and not options[key]:
            continue
        if key != "include_usage":
            shown = ascii(key[:80])[1:-1]
            raise BadRequest(f"unknown stream option {shown}", f"stream_options.{shown}")
    return boolean(options, "include_usage")


def _trial(field: Any) -> tuple[str | None, int | None]:
    if field is None:
        return None, None
    if not isinstance(field, dict) or set(field) - {"arm", "draft_len"}:
        raise BadRequest('paceline: wanted {"arm": NAME, "draft_len": K}', "paceline")
    arm = field.get("arm")
    if arm is not None and not isinstance(arm, str):
        raise BadRequest("paceline.arm: wanted an arm's name", "paceline.arm")
    return arm, whole(field, "draft_len", 0, 16)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)
