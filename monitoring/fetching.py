"""Many addresses asked at once, each within its time and size. The only HTTP of the monitor.

Knows bytes and silence; knows nothing of what they say. One address that hangs, drips, floods or is
gone is its own fault and takes nothing from the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address

import httpx

AT_ONCE = 64  # addresses
MOST_BYTES = 8 * 2**20  # of a page
MOST_LOG_BYTES = 256 * 2**20  # of a log; what is left of it is asked for at the next look


class FetchError(Exception):
    """No answer, or none that is one."""

    def __init__(self, what: str, *, silent: bool) -> None:
        super().__init__(what)
        self.silent = silent  # nothing came, as of a server that is down or busy


@dataclass(frozen=True, slots=True)
class Fetcher:
    """Asks through a client that carries time-outs for an answer to begin or go on."""

    client: httpx.AsyncClient
    seconds: float  # for a whole page
    gate: asyncio.Semaphore

    async def page(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        form: Mapping[str, str] | None = None,  # asks by POST
        most_bytes: int = MOST_BYTES,
    ) -> bytes:
        """The whole answer. FetchError where there is none, or it is too long or too slow."""
        body, whole = await self._read(url, headers, params, form, most_bytes)
        if not whole:
            raise FetchError(f"more than {most_bytes} bytes, or slower than that", silent=False)
        return body

    async def lines(
        self, url: str, *, headers: Mapping[str, str] | None = None, params: Mapping[str, str]
    ) -> list[bytes]:
        """Whole lines of a log, as far as they came in time. FetchError where nothing came."""
        body, whole = await self._read(url, headers, params, None, MOST_LOG_BYTES)
        *lines, rest = body.split(b"\n")
        return [*lines, rest] if whole and rest else lines

    async def _read(
        self,
        url: str,
        headers: Mapping[str, str] | None,
        params: Mapping[str, str] | None,
        form: Mapping[str, str] | None,
        most_bytes: int,
    ) -> tuple[bytes, bool]:
        body = bytearray()
        # A small packed answer may unpack to anything, so it is asked for as it is.
        asked = {"Accept-Encoding": "identity", **(headers or {})}
        method = "GET" if form is None else "POST"
        data = None if form is None else dict(form)
        async with self.gate:
            for last in (False, True):  # a kept connection may have been closed meanwhile
                try:
                    async with (
                        asyncio.timeout(self.seconds),
                        self.client.stream(
                            method, url, params=params, headers=asked, data=data
                        ) as answer,
                    ):
                        _check(answer, form is not None)
                        async for chunk in answer.aiter_raw():
                            body += chunk
                            if len(body) > most_bytes:
                                return bytes(body[:most_bytes]), False
                    return bytes(body), True
                except TimeoutError as error:
                    if body:
                        return bytes(body), False
                    what = f"no answer within {self.seconds:g} seconds"
                    raise FetchError(what, silent=True) from error
                except httpx.HTTPError as error:
                    closed = isinstance(error, httpx.RemoteProtocolError | httpx.ReadError)
                    if closed and not body and not last:
                        continue
                    if body and closed:  # cut short: what came is whole lines but for the last
                        return bytes(body), False
                    raise FetchError(f"no answer ({error!r})", silent=True) from error
                except (httpx.InvalidURL, UnicodeError) as error:
                    raise FetchError(f"no address ({error})", silent=False) from error
        raise AssertionError("it returns or raises")


def _check(answer: httpx.Response, asked_by_post: bool) -> None:
    if answer.status_code >= 500 and not asked_by_post:
        raise FetchError(f"answered {answer.status_code}", silent=True)
    if answer.status_code != 200 and not asked_by_post:
        raise FetchError(f"answered {answer.status_code}, wanted 200", silent=False)
    if answer.headers.get("Content-Encoding", "identity") != "identity":
        raise FetchError("answered packed though it was asked to answer plainly", silent=False)


def on_this_machine(url: str) -> bool:
    """Whether the URL's host is a loopback address, which no proxy of the environment reaches."""
    host = httpx.URL(url).host
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name; it is not looked up
        return host == "localhost"
