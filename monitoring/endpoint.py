"""What a watched server answers, or nothing while it does not. The HTTP half of the monitor.

Knows the built-in server's admin API; knows nothing of what the answers mean for a pair. A server
that is down, starts anew or answers nonsense is logged once an hour, not once a poll, and never
raised; one that sends slowly, or without end, is cut off.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from ipaddress import ip_address

import httpx

from monitoring.answers import AheadError, AnswerError, Served, read_line, read_served
from monitoring.scrape import Scrape, ScrapeError, parse
from speculation.records import Exchange

log = logging.getLogger("paceline.monitoring")

MOST_BYTES = 8 * 2**20  # of an answer; what is left of a log is asked for at the next look
MOST_LINE = 4 * 2**20  # bytes of one exchange; captured token ids take some
AGAIN_SECONDS = 3600.0  # before the same kind of fault is logged again


def on_this_machine(url: str) -> bool:
    """Whether the URL's host is a loopback address, which no proxy of the environment reaches."""
    host = httpx.URL(url).host
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name; it is not looked up
        return host == "localhost"


class Endpoint:
    """One server, through a client that carries its address, time-outs and admin key."""

    def __init__(
        self,
        client: httpx.Client,
        *,
        seconds: float = 30.0,  # for a whole answer; the client's time-out is for it to go on
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._seconds, self._clock = client, seconds, clock
        self._told: dict[tuple[str, str], float] = {}  # by path and kind, when it was logged
        self._faulty: set[str] = set()

    def pair(self) -> Served | None:
        """GET /admin/pair: what is served now, and the swaps before it."""
        path = "/admin/pair"
        body = self._whole(path)
        try:
            return None if body is None else read_served(body, now=self._clock())
        except AnswerError as error:
            self._fault(path, "nonsense", str(error))
            return None

    def metrics(self, *, at: float) -> Scrape | None:
        """GET /metrics, as looked at at `at`."""
        body = self._whole("/metrics")
        try:
            return None if body is None else parse(body.decode(errors="replace"), at=at)
        except ScrapeError as error:
            self._fault("/metrics", "nonsense", str(error))
            return None

    def exchanges(self, since: float) -> Iterator[tuple[float, Exchange]]:
        """GET /admin/exchanges: those logged after `since`, each with when, as they arrive.

        A line that is no exchange, or one that cannot be, is passed over. An answer cut short ends
        like a complete one: the rest is asked for at the next poll.
        """
        path = "/admin/exchanges"
        passed_over = False
        try:
            for line in self._lines(path, {"since": repr(since)}):
                try:
                    yield read_line(line, now=self._clock())
                except AheadError as error:
                    passed_over = True
                    self._fault("an exchange", "ahead", f"passed over: {error}")
                except AnswerError as error:
                    passed_over = True
                    self._fault("an exchange", "nonsense", f"passed over, {error}: {line[:200]!r}")
            self._fine(path)
        except httpx.HTTPError as error:
            self._silent(path, error)
        if not passed_over:
            self._faulty.discard("an exchange")

    def _lines(self, path: str, params: dict[str, str]) -> Iterator[bytes]:
        """Whole lines; the last one too where it has no end, unless it was cut."""
        rest, overlong = b"", False
        for chunk in self._chunks(path, params, most_bytes=32 * MOST_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            if overlong and lines:  # the end of a line whose beginning was thrown away
                overlong, lines = False, lines[1:]
            yield from lines
            if len(rest) > MOST_LINE:
                overlong, rest = True, b""
                self._fault("an exchange", "long", f"passed over: more than {MOST_LINE} bytes")
        if rest and not overlong:
            yield rest

    def _whole(self, path: str) -> bytes | None:
        body = b""
        try:
            for chunk in self._chunks(path, {}, most_bytes=MOST_BYTES + 1):
                body += chunk
        except httpx.HTTPError as error:
            self._silent(path, error)
            return None
        if len(body) > MOST_BYTES:
            self._fault(path, "long", f"more than {MOST_BYTES} bytes, wanted a server of ours")
            return None
        self._fine(path)
        return body

    def _chunks(self, path: str, params: dict[str, str], *, most_bytes: int) -> Iterator[bytes]:
        """The answer as it comes, until it ends, is too long or takes too long."""
        end = time.monotonic() + self._seconds
        plain = {"Accept-Encoding": "identity"}  # a small packed answer may unpack to anything
        with self._client.stream("GET", path, params=params, headers=plain) as answer:
            answer.raise_for_status()
            if answer.headers.get("Content-Encoding", "identity") != "identity":
                raise httpx.DecodingError("packed, and it was asked for plainly")
            for chunk in answer.iter_raw():  # as it comes: a size would be waited for
                most_bytes -= len(chunk)
                yield chunk
                if most_bytes <= 0:
                    return
                if time.monotonic() > end:
                    raise httpx.ReadTimeout(f"not at its end after {self._seconds:g} seconds")

    def _silent(self, where: str, error: httpx.HTTPError) -> None:
        what = f"no answer from {self._client.base_url} ({error!r}), asking again"
        self._fault(where, type(error).__name__, what)

    def _fault(self, where: str, kind: str, what: str) -> None:
        now = time.monotonic()
        if now - self._told.get((where, kind), -AGAIN_SECONDS) >= AGAIN_SECONDS:
            log.warning("%s: %s", where, what)
            self._told[where, kind] = now
        self._faulty.add(where)

    def _fine(self, where: str) -> None:
        if where in self._faulty:
            self._faulty.discard(where)
            log.info("%s: answered again", where)
