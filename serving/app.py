"""The routes: HTTP in and out, nothing decided here that the service could decide.

The API under /v1 is OpenAI's. The admin side has no key yet, so it answers loopback clients only.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from monitoring.exchanges import read_logged
from serving.answers import Answer
from serving.bodies import Ask, read_body, read_chat, read_completion
from serving.fields import BadRequest
from serving.replies import Reply, error_body, json_response
from serving.service import Service, UnavailableError
from serving.settings import is_loopback
from serving.tickets import QueueFullError

log = logging.getLogger("paceline.serving")

BODY_SECONDS = 30.0  # to send a whole body in
Handler = Callable[[Request], Awaitable[Response]]


def create_app(service: Service) -> Starlette:
    """The ASGI application over one service."""

    def completions(read: Callable[[dict[str, Any]], Ask]) -> Handler:
        async def handle(request: Request) -> Response:
            try:
                body = await _body(request, service.settings.body_bytes)
                ask = read(read_body(body))
                ticket = await service.admit(ask)
            except BadRequest as error:
                service.refused("invalid")
                return json_response(
                    error_body(
                        error.message, kind="invalid_request_error", parameter=error.parameter
                    ),
                    error.status,
                )
            answer = Answer.to(ask, ticket, service.settings.model)
            return Reply(answer, service.worker, deadline_seconds=service.settings.deadline_seconds)

        return handle

    async def models(request: Request) -> Response:
        entry = {
            "id": service.settings.model,
            "object": "model",
            "created": 0,
            "owned_by": "paceline",
        }
        return json_response({"object": "list", "data": [entry]})

    async def live(request: Request) -> Response:
        dead = service.worker.dead
        return json_response({"live": dead is None, "why": dead}, 200 if dead is None else 503)

    async def ready(request: Request) -> Response:
        why = service.unready()
        return json_response({"ready": why is None, "why": why}, 200 if why is None else 503)

    async def metrics(request: Request) -> Response:
        service.metrics.running = len(service.worker.tickets)
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")

    async def pair(request: Request) -> Response:
        return json_response(service.describe())

    async def swap(request: Request) -> Response:
        if service.hurry is None:
            return json_response(
                error_body("this server follows no registry", kind="invalid_request_error"), 409
            )
        service.hurry()
        return json_response({"hurried": True}, 202)

    async def drain(request: Request) -> Response:
        service.draining = True
        return json_response({"draining": True, "running": len(service.worker.tickets)}, 202)

    async def exchanges(request: Request) -> Response:
        since = _since(request.query_params.get("since", "0"))
        lines = _lines(service, since)
        return StreamingResponse(lines, media_type="application/x-ndjson")

    return Starlette(
        routes=[
            Route("/v1/chat/completions", completions(read_chat), methods=["POST"]),
            Route("/v1/completions", completions(read_completion), methods=["POST"]),
            Route("/v1/models", models),
            Route("/health/live", live),
            Route("/health/ready", ready),
            Route("/metrics", metrics),
            Route("/admin/pair", _admin(pair)),
            Route("/admin/swap", _admin(swap), methods=["POST"]),
            Route("/admin/drain", _admin(drain), methods=["POST"]),
            Route("/admin/exchanges", _admin(exchanges)),
        ],
        exception_handlers={
            HTTPException: _http_error,
            UnavailableError: _unavailable,
            QueueFullError: _full,
            ClientDisconnect: _gone,
            Exception: _fault,
        },
    )


def _admin(handler: Handler) -> Handler:
    async def guarded(request: Request) -> Response:
        client = request.client
        if client is None or not is_loopback(client.host):
            raise HTTPException(403, "the admin side answers on loopback only")
        if "origin" in request.headers:  # a web page in the operator's browser
            raise HTTPException(403, "the admin side answers no web pages")
        return await handler(request)

    return guarded


async def _body(request: Request, most_bytes: int) -> bytes:
    """The request's body. Raises BadRequest for one that is too long or comes too slowly."""
    too_long = BadRequest(f"the body is longer than {most_bytes} bytes", status=413)
    stated = request.headers.get("content-length", "")
    if stated.isdigit() and len(stated) < 20 and int(stated) > most_bytes:
        raise too_long
    chunks, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                size += len(chunk)
                if size > most_bytes:
                    raise too_long
                chunks.append(chunk)
    except TimeoutError:
        raise BadRequest("the body did not come in time", status=408) from None
    return b"".join(chunks)


def _since(text: str) -> float:
    try:
        since = float(text)
    except ValueError:
        since = math.nan
    if not math.isfinite(since):
        raise HTTPException(400, "since: wanted seconds since the epoch")
    return since


def _lines(service: Service, since: float) -> Iterator[bytes]:
    for stored in read_logged(service.exchanges.folder, since):
        yield json.dumps(stored, separators=(",", ":")).encode() + b"\n"


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = "invalid_request_error" if error.status_code < 500 else "server_error"
    headers = dict(error.headers) if error.headers else None
    return json_response(error_body(error.detail, kind=kind), error.status_code, headers)


async def _unavailable(request: Request, error: Exception) -> Response:
    assert isinstance(error, UnavailableError)
    headers = {"retry-after": str(error.retry_seconds)}
    return json_response(error_body(str(error), kind="server_error"), 503, headers)


async def _full(request: Request, error: Exception) -> Response:
    assert isinstance(error, QueueFullError)
    headers = {"retry-after": str(error.retry_seconds)}
    body = error_body(str(error), kind="rate_limit_error", code="queue_full")
    return json_response(body, 429, headers)


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it


async def _fault(request: Request, error: Exception) -> Response:
    return json_response(error_body("the server failed on this request", kind="server_error"), 500)
