"""The routes: HTTP in and out, nothing decided here that the service could decide.

The API under /v1 is OpenAI's. What asks how the server is stands open, everything else is behind
one of `doors`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from serving.admin import admin_routes
from serving.bodies import Ask, read_body, read_chat, read_completion
from serving.doors import Doors, Handler
from serving.errors import DEADLINE, FAULT, Failure
from serving.fields import BadRequest
from serving.leaving import unless_gone
from serving.openapi import document
from serving.parameters import Bounds
from serving.reading import Bodies, read_bytes, stated_bytes
from serving.replies import Reply, failed, json_response
from serving.service import Service, UnavailableError
from serving.tickets import DeadlineError, Group, QueueFullError

# How a request is counted that was not admitted; `error` for a fault of ours.
NOT_ADMITTED: dict[type[Exception], str] = {
    BadRequest: "invalid",
    QueueFullError: "rejected",
    UnavailableError: "unavailable",
    DeadlineError: "deadline",
    ClientDisconnect: "cancelled",
}


def create_app(
    service: Service,
    *,
    admin_port: int | None = None,
    crowded: Callable[[], bool] = lambda: False,
) -> ASGIApp:
    """The ASGI application over one service.

    Connections that were taken at `admin_port` reach the admin side and nothing else, and it is
    reached by no others. None: both sides answer wherever the server listens. While it is
    `crowded`, more connections being open than are meant to be, requests are turned away.
    """
    doors = Doors(service.settings, service.refused)
    health, clients = _health_routes(service), _api_routes(service, doors, crowded)
    operators = admin_routes(service, doors)
    settings = service.settings
    if admin_port is None:
        described = _document_route(document(settings), doors.tenants)
        return _app([*health, *clients, *operators, described])
    of_clients = _document_route(document(settings, operators=False), doors.tenants)
    of_operators = _document_route(document(settings, clients=False), doors.operators)
    return _ByPort(
        _app([*health, *clients, of_clients]),
        _app([*health, *operators, of_operators]),
        admin_port,
    )


def _app(routes: list[Route]) -> Starlette:
    app = Starlette(
        routes=routes,
        exception_handlers={
            BadRequest: _bad,
            HTTPException: _http_error,
            UnavailableError: _unavailable,
            QueueFullError: _full,
            DeadlineError: _late,
            ClientDisconnect: _gone,
            Exception: _fault,
        },
    )
    app.router.redirect_slashes = False  # a redirect would repeat whatever Host the client wrote
    return app


class _ByPort:
    """Two applications, told apart by the port at which a connection was taken."""

    def __init__(self, clients: ASGIApp, operators: ASGIApp, admin_port: int) -> None:
        self.clients, self.operators, self.admin_port = clients, operators, admin_port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        _, port = scope.get("server") or ("", None)  # the socket's own; no header can say it
        app = self.operators if port == self.admin_port else self.clients
        await app(scope, receive, send)


def _health_routes(service: Service) -> list[Route]:
    async def live(request: Request) -> Response:
        dead = service.worker.dead
        return json_response({"live": dead is None, "why": dead}, 200 if dead is None else 503)

    async def ready(request: Request) -> Response:
        why = service.unready()
        return json_response({"ready": why is None, "why": why}, 200 if why is None else 503)

    return [Route("/health/live", live), Route("/health/ready", ready)]


def _document_route(told: dict[str, Any], door: Callable[[Handler], Handler]) -> Route:
    async def described(request: Request) -> Response:
        return json_response(told)

    return Route("/openapi.json", door(described))


def _api_routes(service: Service, doors: Doors, crowded: Callable[[], bool]) -> list[Route]:
    settings, begun = service.settings, int(time.time())
    bounds = Bounds(messages=settings.most_messages, context=settings.max_context)
    bodies = Bodies(settings.body_bytes)

    async def admitted(
        request: Request, read: Callable[[dict[str, Any], Bounds], Ask]
    ) -> tuple[Ask, Group]:
        arrived = service.worker.clock()
        if crowded():
            raise UnavailableError("too many connections are open", 1)
        service.expect(stated_bytes(request))
        with bodies.room() as grown:
            ask = read(read_body(await read_bytes(request, settings.body_bytes, grown)), bounds)
            admitting = service.admit(ask, arrived=arrived, tenant=request.state.tenant)
            return ask, await unless_gone(request.receive, admitting)

    def completions(read: Callable[[dict[str, Any], Bounds], Ask]) -> Handler:
        async def handle(request: Request) -> Response:
            try:
                ask, group = await admitted(request, read)
            except Exception as error:
                service.refused(NOT_ADMITTED.get(type(error), "error"))
                raise
            return Reply.to(ask, group, settings.model, coalesce_tokens=settings.coalesce_tokens)

        return handle

    def adapters() -> Iterable[str]:
        """Of the pair that serves: a following server's are its champion's."""
        current = service.worker.current
        return settings.adapters if current is None else current.adapters

    def entry(name: str) -> dict[str, Any]:
        told = {"id": name, "object": "model", "created": begun, "owned_by": "paceline"}
        return told | ({} if name == settings.model else {"parent": settings.model})

    async def models(request: Request) -> Response:
        names = (settings.model, *adapters())
        return json_response({"object": "list", "data": [entry(name) for name in names]})

    async def model(request: Request) -> Response:
        name = request.path_params["name"]
        if name != settings.model and name not in adapters():
            message = f"model {ascii(name[:80])} is not served here"
            raise BadRequest(message, "model", status=404, code="model_not_found")
        return json_response(entry(name))

    chat, plain = completions(read_chat), completions(read_completion)
    return [
        Route("/v1/chat/completions", doors.tenants(chat), methods=["POST"]),
        Route("/v1/completions", doors.tenants(plain), methods=["POST"]),
        Route("/v1/models", doors.tenants(models)),
        Route("/v1/models/{name:path}", doors.tenants(model)),
    ]


async def _bad(request: Request, error: Exception) -> Response:
    assert isinstance(error, BadRequest)
    return failed(Failure(error.status, error.message, error.code, error.parameter))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return failed(Failure(error.status_code, error.detail), dict(error.headers or {}))


async def _unavailable(request: Request, error: Exception) -> Response:
    assert isinstance(error, UnavailableError)
    return failed(Failure(503, str(error), retry_seconds=error.retry_seconds))


async def _full(request: Request, error: Exception) -> Response:
    assert isinstance(error, QueueFullError)
    return failed(Failure(429, str(error), retry_seconds=error.retry_seconds))


async def _late(request: Request, error: Exception) -> Response:
    return failed(DEADLINE)


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it


async def _fault(request: Request, error: Exception) -> Response:
    return failed(FAULT)
