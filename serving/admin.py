"""The operator's routes: what is served, how, what was counted and kept, and the end of it.

Knows HTTP; what happens is the service's, the follower's and the log's own business.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator
from itertools import islice
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from monitoring.exchanges import read_logged
from registry.hooks import HookError, Hooks
from serving.alerts import alert_route
from serving.doors import Doors, Handler
from serving.fields import BadRequest
from serving.passing import in_passing_thread
from serving.reading import SMALL_BYTES, read_bytes
from serving.replies import json_response
from serving.service import Service
from serving.steering import steered

log = logging.getLogger("paceline.serving")

MOST_EXCHANGES = 1_000_000  # in one answer


def admin_routes(service: Service, doors: Doors) -> list[Route]:
    """Metrics and the admin side, each behind its door."""

    async def metrics(request: Request) -> Response:
        _look(service)
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")

    async def pair(request: Request) -> Response:
        return json_response(service.describe())

    async def steer(request: Request) -> Response:
        given = await _object(service, request, "drafter", "draft_len")
        drafter, draft_len = given.get("drafter"), given.get("draft_len")
        if drafter is not None and not isinstance(drafter, str):
            raise BadRequest("drafter: wanted the name of one", "drafter")
        if draft_len is not None and type(draft_len) is not int:
            raise BadRequest("draft_len: wanted a whole number, or null to adapt", "draft_len")
        await steered(service, drafter, draft_len, said="draft_len" in given)
        turned = ", ".join(f"{name} to {json.dumps(value)}" for name, value in given.items())
        _note(request, "turned %s", turned or "nothing")
        return json_response(service.describe())

    async def swap(request: Request) -> Response:
        if service.hurry is None:
            raise HTTPException(409, "this server follows no registry")
        given = await _object(service, request, "reload", empty=True)
        reload = given.get("reload", False)
        if not isinstance(reload, bool):
            raise BadRequest("reload: wanted true or false", "reload")
        service.hurry(reload=reload)
        what = "the pair to be loaded anew" if reload else "a look at the registry"
        _note(request, "asked for %s", what)
        return json_response({"hurried": True, "reload": reload}, 202)

    async def drain(request: Request) -> Response:
        if request.method == "POST":
            service.draining = True
        elif service.ending:
            raise HTTPException(409, "the server was told to end: start another")
        else:
            service.draining = False
        _note(request, "began a drain" if service.draining else "ended the drain")
        running = sum(ticket.counted for ticket in service.worker.tickets)
        return json_response({"draining": service.draining, "running": running}, 202)

    async def exchanges(request: Request) -> Response:
        since = _seconds(request, "since", 0.0)
        most = _whole(request, "limit", MOST_EXCHANGES)
        lines = _lines(service, since, most)
        return StreamingResponse(lines, media_type="application/x-ndjson")

    async def delete(request: Request) -> Response:
        if "before" not in request.query_params:
            raise HTTPException(400, "before: wanted seconds since the epoch; lines from then stay")
        # A log of a gigabyte is read for minutes; requests are answered and logged meanwhile.
        before = _seconds(request, "before", 0.0)
        deleted = await in_passing_thread(service.exchanges.deletion(before=before))
        _note(request, "deleted %d exchanges from before %s", deleted, before)
        return json_response({"deleted": deleted})

    routes = [
        Route("/metrics", doors.figures(metrics)),
        _by_method("/admin/pair", doors, GET=pair, PATCH=steer),
        Route("/admin/swap", doors.operators(swap), methods=["POST"]),
        Route("/admin/drain", doors.operators(drain), methods=["POST", "DELETE"]),
        _by_method("/admin/exchanges", doors, GET=exchanges, DELETE=delete),
    ]
    if service.settings.hook_secret is not None:
        routes.append(_hook(service, Hooks(service.settings.hook_secret)))
    if service.settings.alert_token is not None and service.outbox is not None:
        routes.append(alert_route(service, service.outbox, service.settings.alert_token))
    return routes


def _note(request: Request, did: str, *values: object) -> None:
    """A line of the log: who did what on this side. What is read is nobody's business."""
    log.info(f"{request.state.operator} {did}", *values)


def _by_method(path: str, doors: Doors, **handlers: Handler) -> Route:
    """One route, so that a method it does not have is answered with all that it has."""

    async def handle(request: Request) -> Response:
        return await handlers["GET" if request.method == "HEAD" else request.method](request)

    return Route(path, doors.operators(handle), methods=list(handlers))


def _hook(service: Service, hooks: Hooks) -> Route:
    """The registry's webhook. Its signature is its key, so it stands behind no door."""

    async def hook(request: Request) -> Response:
        body = await read_bytes(request, SMALL_BYTES)  # from anybody: it is not believed yet
        try:
            new = hooks.new(request.headers, body)
        except HookError as error:
            raise HTTPException(401, f"this webhook is not believed: {error}") from error
        if new and service.nudge is not None:
            service.nudge()
        return json_response({"hurried": new and service.nudge is not None}, 202)

    return Route("/hooks/registry", hook, methods=["POST"])


def _look(service: Service) -> None:
    """Set the gauges to what is so now."""
    tickets = [ticket for ticket in service.worker.tickets if ticket.counted]
    waiting = [ticket for ticket in tickets if not ticket.begun]
    service.metrics.gauges = {
        "running_requests": ("Requests accepted and not ended.", len(tickets)),
        "waiting_requests": ("Of these, without a slot yet.", len(waiting)),
        "waiting_tokens": (
            "What the waiting may cost, prompt and answer; the queue is bounded by it.",
            sum(ticket.tokens for ticket in waiting),
        ),
        "ready": ("1 while requests are taken.", float(service.unready() is None)),
        "unlogged_exchanges": ("Lines that the exchange log could not take.", service.unlogged),
    }
    loaded = service.worker.current
    if loaded is not None:
        service.metrics.served = {
            "pair": loaded.default.pair,  # as the series of requests have it
            "release": loaded.host.release.digest,
            "drafter": loaded.default.name,
            "verified": str(loaded.default.verified).lower(),
            "version": loaded.version or "",
        }


async def _object(
    service: Service, request: Request, *known: str, empty: bool = False
) -> dict[str, Any]:
    """The body's JSON object; {} for no body where it may be `empty`. Raises BadRequest for
    another, or with a name that is not known."""
    body = await read_bytes(request, service.settings.body_bytes)
    if empty and not body.strip():
        return {}
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise BadRequest(f"the body: wanted a JSON object with {' or '.join(known)}")
    for name in given:
        if name not in known:
            raise BadRequest(f"{ascii(name[:80])} is not known: wanted {' or '.join(known)}")
    return given


def _seconds(request: Request, name: str, default: float) -> float:
    try:
        value = float(request.query_params.get(name, default))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise HTTPException(400, f"{name}: wanted seconds since the epoch")
    return value


def _whole(request: Request, name: str, most: int) -> int:
    text = request.query_params.get(name, str(most))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= most):
        raise HTTPException(400, f"{name}: wanted a whole number of 1 to {most}")
    return int(text)


def _lines(service: Service, since: float, most: int) -> Iterator[bytes]:
    for stored in islice(read_logged(service.exchanges.folder, since), most):
        yield json.dumps(stored, separators=(",", ":")).encode() + b"\n"
