"""Who gets through to a route: tenants to the API, operators to the admin side.

Knows headers and addresses; what a key is worth is `keys`' business. Where no key is set, a web
page must not reach a server on loopback through the browser of somebody on this host: its name may
be made to lead here (DNS rebinding), so the Host header has to be one of ours, and an Origin too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from serving.keys import Keys
from serving.settings import ServeSettings, is_loopback

Handler = Callable[[Request], Awaitable[Response]]


class Doors:
    """Wraps handlers so that they are reached only by whom they are for."""

    def __init__(self, settings: ServeSettings, refused: Callable[[str], None]) -> None:
        self.keys = Keys.of(settings.keys, settings.admin_keys)
        self._here = is_loopback(settings.host)
        self._hosts = frozenset(host.lower() for host in settings.hosts)
        self._refused = refused  # counts one that was turned away

    def tenants(self, handler: Handler) -> Handler:
        """For the API. The tenant's name is then `request.state.tenant`."""

        async def guarded(request: Request) -> Response:
            authorization = request.headers.get("authorization")
            tenant = self.keys.tenant(authorization)
            if tenant is None:
                raise self._unauthorized("a tenant's key")
            if not tenant and self._here:
                self._check_host(request)
            request.state.tenant = tenant
            return await handler(request)

        return guarded

    def operators(self, handler: Handler) -> Handler:
        """For the admin side: with an admin key, or, where none is set, from this host.

        Who it was, as far as that is known, is then `request.state.operator`.
        """

        async def guarded(request: Request) -> Response:
            if self.keys.guarded:
                number = self.keys.operator(request.headers.get("authorization"))
                if number is None:
                    raise self._unauthorized("an admin key")
                request.state.operator = f"whoever has admin key {number}"
            else:
                client = request.client
                if client is None or not is_loopback(client.host):
                    raise HTTPException(
                        403,
                        "the admin side answers on loopback only: set PACELINE_ADMIN_KEYS, and "
                        "send one of them, to ask from elsewhere",
                    )
                if "origin" in request.headers:  # a web page in the operator's browser
                    raise HTTPException(403, "the admin side answers no web pages")
                self._check_host(request)
                request.state.operator = "somebody on this host"
            return await handler(request)

        return guarded

    def figures(self, handler: Handler) -> Handler:
        """For metrics: as for the admin side where a key is set, else for everybody."""
        if self.keys.guarded:
            return self.operators(handler)

        async def guarded(request: Request) -> Response:
            if self._here:
                self._check_host(request)
            return await handler(request)

        return guarded

    def _unauthorized(self, wanted: str) -> HTTPException:
        self._refused("unauthorized")
        return HTTPException(
            401,
            f"no key that is known here: wanted {wanted}, as `Authorization: Bearer KEY`",
            {"www-authenticate": "Bearer"},
        )

    def _check_host(self, request: Request) -> None:
        if not self._is_ours(request.headers.get("host", "")):
            raise HTTPException(
                403,
                "without a key this server answers to names of this host only: ask 127.0.0.1 or "
                "localhost, or start it with that name under `hosts`",
            )
        origin = request.headers.get("origin")
        if origin is not None and not self._is_ours(origin.partition("://")[2]):
            raise HTTPException(403, "without a key this server answers no page of another site")

    def _is_ours(self, host: str) -> bool:
        name = host_name(host)
        return is_loopback(name) or name in self._hosts


def host_name(header: str) -> str:
    """The name in a Host header, without port and brackets, in lower case."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()
