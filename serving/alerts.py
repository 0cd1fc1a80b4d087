"""The route that Alertmanager posts to: a team's own alert starts what an alarm of ours would.

Knows its token and HTTP; what is read from a body is `monitoring/alertmanager.py`'s matter. An
answer of 4xx is not tried again by Alertmanager, one of 5xx is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from monitoring.alertmanager import Champion, PayloadError, read
from monitoring.outbox import Outbox
from serving.fields import BadRequest
from serving.keys import Keys
from serving.passing import in_passing_thread
from serving.reading import read_bytes
from serving.replies import json_response
from serving.service import Service

log = logging.getLogger("paceline.serving")

MOST_BYTES = 2**20
PATH = "/hooks/alerts"


def alert_route(
    service: Service, outbox: Outbox, token: str, *, clock: Callable[[], float] = time.time
) -> Route:
    """Its bearer token is its key, so it stands behind no door."""
    keys = Keys.of({}, (token,))

    async def alerts(request: Request) -> Response:
        if keys.operator(request.headers.get("authorization")) is None:
            raise HTTPException(
                401,
                "wanted the bearer token of PACELINE_ALERT_TOKEN",
                headers={"WWW-Authenticate": "Bearer"},
            )
        body = await read_bytes(request, MOST_BYTES)
        champions = _served(service)
        if not champions:
            raise HTTPException(503, "nothing is served yet", headers={"Retry-After": "30"})
        try:
            taken = read(body, champions=champions, at=clock())
        except PayloadError as error:
            raise BadRequest(str(error)) from error
        try:
            new = await in_passing_thread(lambda: [outbox.put(one) for one in taken.notices])
        except OSError as error:
            log.error("an alert could not be written down: %s", error)
            raise HTTPException(
                503, "the alarm could not be written down", headers={"Retry-After": "30"}
            ) from error
        for why in taken.passed_over:
            log.warning("an alert is passed over: %s", why)
        told = {"taken": len(new), "new": sum(new), "passed_over": list(taken.passed_over)}
        return json_response(told, 202)

    return Route(PATH, alerts, methods=["POST"])


def _served(service: Service) -> dict[str, Champion]:
    """What is served, by the pairing's name; nothing while nothing is."""
    loaded = service.worker.current
    if loaded is None:
        return {}
    arm = loaded.default
    return {service.settings.model: Champion(arm.pair, loaded.host.release.digest, arm.name)}
