"""What clients get, in JSON Schema's words: answers, models, health, errors.

Pure data for the OpenAPI document; `answers`, `usage` and `errors` write what is described here,
and a test holds each answer against it.
"""

from __future__ import annotations

from typing import Any

from serving.fields import Schema

COUNT: Schema = {"type": "integer", "minimum": 0}
SECONDS: Schema = {"type": "number", "minimum": 0}
TEXT: Schema = {"type": "string"}
NAME_OR_NULL: Schema = {"type": ["string", "null"]}
LOGPROB: Schema = {"type": "number", "maximum": 0.001}  # rounding may end above 0


def closed(**properties: Any) -> Schema:
    """An object with exactly these."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def several(items: Schema) -> Schema:
    return {"type": "array", "items": items}


ERROR = closed(error=closed(message=TEXT, type=TEXT, param=NAME_OR_NULL, code=NAME_OR_NULL))
HEALTH_LIVE = closed(live={"type": "boolean"}, why=NAME_OR_NULL)
HEALTH_READY = closed(ready={"type": "boolean"}, why=NAME_OR_NULL)
MODEL: Schema = {
    "type": "object",
    "properties": {
        "id": TEXT,
        "object": {"const": "model"},
        "created": COUNT,
        "owned_by": TEXT,
        "parent": {**TEXT, "description": "of an adapter the target"},
    },
    "required": ["id", "object", "created", "owned_by"],
    "additionalProperties": False,
}
MODELS = closed(object={"const": "list"}, data=several(MODEL))
USAGE = closed(
    prompt_tokens={**COUNT, "description": "each prompt once, however many answers it got"},
    completion_tokens=COUNT,
    total_tokens=COUNT,
    prompt_tokens_details=closed(cached_tokens=COUNT),
    paceline=closed(
        pair={**TEXT, "description": "the draft and the release that answered"},
        drafter={**TEXT, "description": "head, model, ngram, none, or a trial's arm"},
        release=TEXT,
        adapter=NAME_OR_NULL,
        draft_len={
            **COUNT,
            "description": "K, tokens drafted a round; where adaptive, what a fixed K is",
        },
        adaptive={"type": "boolean", "description": "K is what pays at the moment"},
        rounds={**COUNT, "description": "target forwards that judged drafted tokens"},
        plain_forwards={**COUNT, "description": "target forwards without a draft"},
        drafted=COUNT,
        accepted=COUNT,
        emitted=COUNT,
        judged_per_position=several(COUNT),
        accepted_per_position=several(COUNT),
        prompt_tokens_cached=COUNT,
        queue_seconds=SECONDS,
        prefill_seconds=SECONDS,
        decode_seconds=SECONDS,
    ),
)
_TOKEN = {
    "token": TEXT,
    "bytes": several({"type": "integer", "minimum": 0, "maximum": 255}),
    "logprob": LOGPROB,
}
CHAT_LOGPROBS = closed(
    content=several(closed(**_TOKEN, top_logprobs=several(closed(**_TOKEN)))),
    refusal={"type": "null"},
)
COMPLETION_LOGPROBS = closed(
    tokens=several(TEXT),
    token_logprobs=several(LOGPROB),
    top_logprobs=several({"type": "object", "additionalProperties": LOGPROB}),
    text_offset=several(COUNT),
)


def _choice(logprobs: Schema, **said: Schema) -> Schema:
    return closed(
        index=COUNT,
        finish_reason={"enum": ["stop", "length"]},
        logprobs={"anyOf": [logprobs, {"type": "null"}]},
        **said,
    )


def _answer(kind: str, choice: Schema) -> Schema:
    return closed(
        id=TEXT,
        object={"const": kind},
        created=COUNT,
        model=TEXT,
        system_fingerprint=TEXT,
        choices=several(choice),
        usage=USAGE,
    )


MESSAGE = closed(role={"const": "assistant"}, content=TEXT, refusal={"type": "null"})
CHAT_ANSWER = _answer("chat.completion", _choice(CHAT_LOGPROBS, message=MESSAGE))
COMPLETION_ANSWER = _answer("text_completion", _choice(COMPLETION_LOGPROBS, text=TEXT))
SCHEMAS: dict[str, Schema] = {
    "ChatCompletion": CHAT_ANSWER,
    "Completion": COMPLETION_ANSWER,
    "Model": MODEL,
    "Models": MODELS,
    "Error": ERROR,
    "Live": HEALTH_LIVE,
    "Ready": HEALTH_READY,
}
