"""The OpenAPI document of one port, made of the tables that its readers read by.

Pure. Knows the routes that clients and operators may ask; a test compares them with the app's.
"""

from __future__ import annotations

from importlib import metadata
from typing import Any

from monitoring.alertmanager import MOST_ALERTS, VERSION
from serving.answer_schemas import SCHEMAS, closed
from serving.errors import KINDS
from serving.fields import Schema, Whole, nullable, object_of
from serving.parameters import Bounds, chat_parameters, completion_parameters
from serving.settings import MOST_DRAFTED, ServeSettings

JSON = "application/json"
STREAM_NOTE = (
    "With `stream` the answer is `text/event-stream`: a `data:` line of JSON for each chunk, then "
    "`data: [DONE]`. A fault after the first chunk is a line with an `error`, and no `[DONE]`."
)
RETRY_AFTER = {
    "Retry-After": {
        "description": "whole seconds until it is worth to come back",
        "schema": {"type": "integer", "minimum": 1},
        "required": True,
    }
}
# Of each event of a stream; what `data` holds is JSON in text, but for the last one.
EVENT: Schema = {
    "type": "object",
    "required": ["data"],
    "properties": {
        "data": {"type": "string", "description": "a chunk, or an `error`, as JSON; or `[DONE]`"}
    },
}
SINCE_EPOCH: Schema = {"type": "number"}


def document(
    settings: ServeSettings, *, clients: bool = True, operators: bool = True
) -> dict[str, Any]:
    """As `GET /openapi.json` gives it, at a port for clients, for operators or for both."""
    bounds = Bounds(messages=settings.most_messages, context=settings.max_context)
    keyed: dict[str, Any] = {"security": [{"key": []}]} if settings.keys else {}
    admin: dict[str, Any] = {"security": [{"adminKey": []}]} if settings.admin_keys else {}
    bearer = {"type": "http", "scheme": "bearer"}
    alerts = {} if settings.alert_token is None else {"alertToken": bearer}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Paceline",
            "version": metadata.version("paceline"),
            "description": "OpenAI's API over a target and the draft that keeps step with it.",
        },
        "paths": {
            **(_client_paths(bounds, keyed) if clients else {}),
            **_health_paths(keyed if clients else admin),
            **(_admin_paths(settings, admin) if operators else {}),
        },
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"key": bearer, "adminKey": bearer, **alerts},
        },
    }


def _client_paths(bounds: Bounds, keyed: dict[str, Any]) -> dict[str, Any]:
    chat = object_of(chat_parameters(bounds), "messages")
    completion = object_of(completion_parameters(bounds), "prompt")
    refusals = (400, 401, 403, 404, 408, 413, 429, 500, 503, 504)
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
    return {
        "/v1/chat/completions": {
            "post": {
                "summary": "Answer a conversation",
                "description": STREAM_NOTE,
                "requestBody": _body(chat),
                "responses": _responses(200, "ChatCompletion", *refusals, stream=True),
                **keyed,
            }
        },
        "/v1/completions": {
            "post": {
                "summary": "Go on from prompts",
                "description": STREAM_NOTE,
                "requestBody": _body(completion),
                "responses": _responses(200, "Completion", *refusals, stream=True),
                **keyed,
            }
        },
        "/v1/models": {
            "get": {
                "summary": "The target and its adapters",
                "responses": _responses(200, "Models", 401, 403),
                **keyed,
            }
        },
        "/v1/models/{name}": {
            "get": {
                "summary": "One of them",
                "parameters": [name],
                "responses": _responses(200, "Model", 401, 403, 404),
                **keyed,
            }
        },
    }


def _health_paths(keyed: dict[str, Any]) -> dict[str, Any]:
    def health(summary: str, schema: str) -> dict[str, Any]:
        told = {status: _content(schema, summary) for status in ("200", "503")}
        return {"get": {"summary": summary, "responses": told}}

    return {
        "/health/live": health("Whether the engine's thread works", "Live"),
        "/health/ready": health("Whether requests are taken", "Ready"),
        "/openapi.json": {
            "get": {
                "summary": "This document",
                "responses": _responses(200, {"type": "object"}, 401, 403),
                **keyed,
            }
        },
    }


def _admin_paths(settings: ServeSettings, operators: dict[str, Any]) -> dict[str, Any]:
    told: Schema = {"type": "object"}
    guarded = (401, 403)

    def seconds(name: str, *, required: bool = False) -> dict[str, Any]:
        return {"name": name, "in": "query", "required": required, "schema": SINCE_EPOCH}

    def operation(summary: str, status: int, *faults: int, **more: Any) -> dict[str, Any]:
        return {
            "summary": summary,
            "responses": _responses(status, told, *guarded, *faults),
            **operators,
            **more,
        }

    steer = {"drafter": nullable({"type": "string"}), "draft_len": _nullable_whole()}
    steering = {**closed(**steer), "required": []}
    swapping = {**closed(reload={"type": "boolean"}), "required": []}
    drain = {"post": operation("Take no more requests", 202)}
    drain["delete"] = operation("Take requests again", 202, 409)
    lines = {
        "200": {"description": "a JSON object a line", "content": {"application/x-ndjson": {}}}
    }
    limit = {"name": "limit", "in": "query", "schema": Whole(1, 1_000_000).schema()}
    exchanges = operation("What was served, from the exchange log", 200, 400)
    exchanges["parameters"] = [seconds("since"), limit]
    exchanges["responses"]["200"] = lines
    deletion = operation("Delete what was logged before", 200, 400)
    deletion["parameters"] = [seconds("before", required=True)]
    page = {"description": "Prometheus' text", "content": {"text/plain": {}}}
    metrics = operation("Counters, gauges and histograms", 200)
    metrics["responses"]["200"] = page
    paths = {
        "/metrics": {"get": metrics},
        "/admin/pair": {
            "get": operation("What is served", 200),
            "patch": operation(
                "Another drafter or K", 200, 400, 408, 413, 503, requestBody=_body(steering)
            ),
        },
        "/admin/swap": {
            "post": operation(
                "Look at the registry now",
                202,
                *(400, 408, 409, 413),
                requestBody={**_body(swapping), "required": False},
            )
        },
        "/admin/drain": drain,
        "/admin/exchanges": {"get": exchanges, "delete": deletion},
    }
    if settings.hook_secret is not None:
        # Its signature is its key.
        summary, taken = "The registry's webhook, signed", _responses(202, told, 401, 408, 413)
        anything: Schema = {"content": {"*/*": {}}}  # what is signed is believed, and not read
        hook = {"summary": summary, "requestBody": anything, "responses": taken}
        paths["/hooks/registry"] = {"post": hook}
    if settings.alert_token is not None:
        paths["/hooks/alerts"] = {"post": _alerts()}
    return paths


def _alerts() -> dict[str, Any]:
    """What Alertmanager posts; beyond this it holds much that nobody reads."""
    alerts: Schema = {"type": "array", "items": {"type": "object"}, "maxItems": MOST_ALERTS}
    properties: Schema = {"version": {"const": VERSION}, "alerts": alerts}
    payload: Schema = {"type": "object", "properties": properties, "required": [*properties]}
    whole: Schema = {"type": "integer", "minimum": 0}
    why: Schema = {"type": "array", "items": {"type": "string"}}
    answer: Schema = closed(taken=whole, new=whole, passed_over=why)
    return {
        "summary": "Alertmanager's webhook, version 4",
        "security": [{"alertToken": []}],
        "requestBody": _body(payload),
        "responses": _responses(202, answer, 400, 401, 408, 413, 503),
    }


def _nullable_whole() -> Schema:
    return nullable(Whole(0, MOST_DRAFTED).schema())


def _body(schema: Schema) -> dict[str, Any]:
    return {"required": True, "content": {JSON: {"schema": schema}}}


def _responses(
    status: int, schema: str | Schema, *faults: int, stream: bool = False
) -> dict[str, Any]:
    """The answer's status and those of what may be said instead."""
    good = _content(schema, "done")
    if stream:
        good["content"]["text/event-stream"] = {"schema": EVENT}
        good["headers"] = {"x-request-id": {"schema": {"type": "string"}, "required": True}}
    found = {str(status): good}
    for fault in faults:
        found[str(fault)] = _content("Error", KINDS[fault][1])
        if fault in (429, 503):
            found[str(fault)]["headers"] = RETRY_AFTER
    return found


def _content(schema: str | Schema, description: str) -> dict[str, Any]:
    if isinstance(schema, str):
        schema = {"$ref": f"#/components/schemas/{schema}"}
    return _described(schema, description)


def _described(schema: Schema, description: str) -> dict[str, Any]:
    return {"description": description, "content": {JSON: {"schema": schema}}}
