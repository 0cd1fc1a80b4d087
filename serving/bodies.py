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

from serving.fields import BadRequest, kind, read_fields
from serving.parameters import (
    BOUNDS,
    MOST_CHOICES,
    Bounds,
    chat_parameters,
    completion_parameters,
)
from serving.prompts import Prompt
from serving.sampling_fields import sampling_said

COMPLETION_TOKENS = 16  # OpenAI's default of max_tokens for completions
# In a body, wherever they are: reading them holds up everybody, 0.15 s for a million values and
# 0.7 s for a million texts.
OTHER_NUMBERS = "it has a number that is none there, such as NaN, or one of thousands of digits"
MOST_VALUES, MOST_TEXTS = 2**17, 2**15


@dataclass(frozen=True, slots=True)
class Ask:
    """One request as its client meant it. None is: not said."""

    chat: bool
    model: str | None  # the target's name or an adapter's
    messages: tuple[Mapping[str, str], ...] = ()  # a chat's
    prompts: tuple[Prompt, ...] = ()  # a completion's, one or more
    n: int = 1  # answers to each prompt
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
    adaptive: bool = False  # a trial's: K as the pair adapts it where it serves
    trial_field: bool = False  # `paceline` was in the body

    @property
    def min_tokens(self) -> int:
        return int(self.sampling.get("min_tokens", 0))


def read_body(raw: bytes) -> dict[str, Any]:
    """The JSON object of a request body. Raises BadRequest."""
    _bound(raw)
    try:
        body = json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise BadRequest("the body is not UTF-8") from None
    except RecursionError:
        raise BadRequest("the body is nested too deep") from None
    except ValueError as error:  # JSON's own, or an integer of thousands of digits
        where = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise BadRequest(f"the body is not JSON{where or f': {OTHER_NUMBERS}'}") from None
    if not isinstance(body, dict):
        raise BadRequest(f"the body is a JSON {kind(body)}: wanted an object")
    return body


def read_chat(body: Mapping[str, Any], bounds: Bounds = BOUNDS) -> Ask:
    """The body of POST /v1/chat/completions. Raises BadRequest."""
    _require(body, "messages", "a list of at least one message")
    said = read_fields(body, chat_parameters(bounds))
    limits = {said[key] for key in ("max_tokens", "max_completion_tokens") if key in said}
    if len(limits) > 1:
        raise BadRequest("max_tokens and max_completion_tokens differ: give one", "max_tokens")
    logprobs, top = said.get("logprobs", False), said.get("top_logprobs", 0)
    if top and not logprobs:
        raise BadRequest("top_logprobs needs logprobs: true", "top_logprobs")
    return Ask(
        chat=True,
        messages=said["messages"],
        logprobs=logprobs,
        top_logprobs=top,
        **_shared(said, limits.pop() if limits else None),
    )


def read_completion(body: Mapping[str, Any], bounds: Bounds = BOUNDS) -> Ask:
    """The body of POST /v1/completions. Raises BadRequest."""
    _require(body, "prompt", "text, a list of token ids, or a list of these")
    said = read_fields(body, completion_parameters(bounds))
    prompts, n = said["prompt"], said.get("n", 1)
    if len(prompts) * n > MOST_CHOICES:
        raise BadRequest(
            f"n {n} for {len(prompts)} prompts: wanted {MOST_CHOICES} answers a request at most",
            "n",
        )
    return Ask(
        chat=False,
        prompts=prompts,
        logprobs="logprobs" in said,
        top_logprobs=said.get("logprobs", 0),
        **_shared(said, said.get("max_tokens", COMPLETION_TOKENS)),
    )


def _shared(said: Mapping[str, Any], max_tokens: int | None) -> dict[str, Any]:
    sampling, stream = sampling_said(said), said.get("stream", False)
    least = sampling.get("min_tokens", 0)
    if max_tokens is not None and least > max_tokens:
        raise BadRequest(f"min_tokens {least} is above max_tokens {max_tokens}", "min_tokens")
    if "stream_options" in said and not stream:
        raise BadRequest("stream_options needs stream: true", "stream_options")
    trial = said.get("paceline", {})
    if trial.get("adaptive") and "draft_len" in trial:
        raise BadRequest(
            "paceline.adaptive lets K adapt and paceline.draft_len fixes it: give one",
            "paceline.adaptive",
        )
    return {
        "model": said.get("model"),
        "n": said.get("n", 1),
        "max_tokens": max_tokens,
        "sampling": sampling,
        "stop_ids": said.get("stop_token_ids", frozenset()),
        "stops": said.get("stop", ()),
        "stream": stream,
        "stream_usage": said.get("stream_options", {}).get("include_usage", False),
        "arm": trial.get("arm"),
        "draft_len": trial.get("draft_len"),
        "adaptive": trial.get("adaptive", False),
        "trial_field": "paceline" in said,
    }


def _require(body: Mapping[str, Any], name: str, wanted: str) -> None:
    if body.get(name) is None:
        raise BadRequest(f"{name}: wanted {wanted}", name, code="missing_required_parameter")


def _bound(raw: bytes) -> None:
    """Refuse a JSON text of too many values before it is parsed. Raises BadRequest.

    30 ms for 4 MiB at worst, where parsing takes 150 and reading as much again.
    """
    if raw.count(b'"') // 2 + raw.count(b",") < MOST_TEXTS:
        return
    plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"")  # no quote in it is part of a text
    if plain.count(b'"') // 2 > MOST_TEXTS:
        raise BadRequest(f"the body holds more than {MOST_TEXTS} texts: send less", status=413)
    if sum(outside.count(b",") for outside in plain.split(b'"')[::2]) > MOST_VALUES:
        raise BadRequest(
            f"the body holds more than {MOST_VALUES} values: send less, or prompts as text",
            status=413,
        )


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)
