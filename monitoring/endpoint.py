"""What a watched server answers, or nothing while it does not. The HTTP half of the monitor.

Knows the built-in server's admin API; knows nothing of what the answers mean for a pair. A server
that is down, starts anew or answers nonsense is logged once, not once a poll, and never raised.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

import httpx

from monitoring.scrape import Scrape, ScrapeError, parse
from speculation.records import Exchange

log = logging.getLogger("paceline.monitoring")


def on_this_machine(url: str) -> bool:
    """Whether the URL's host is a loopback address, which no proxy of the environment reaches."""
    host = httpx.URL(url).host
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name; it is not looked up
        return host == "localhost"


class Endpoint:
    """One server, through a client that carries its address, time-outs and admin key."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self._faults: dict[str, str] = {}  # by path, the last one logged

    def pair(self) -> dict[str, Any] | None:
        """GET /admin/pair: what is served now, and the swaps before it."""
        text = self._text("/admin/pair")
        if text is None:
            return None
        try:
            body = json.loads(text)
        except ValueError:
            body = None
        if isinstance(body, dict):
            return body
        self._fault("/admin/pair", f"got {text[:80]!r}, wanted a JSON object")
        return None

    def metrics(self, *, at: float) -> Scrape | None:
        """GET /metrics, as looked at at `at`."""
        text = self._text("/metrics")
        try:
            return None if text is None else parse(text, at=at)
        except ScrapeError as error:
            self._fault("/metrics", str(error))
            return None

    def exchanges(self, since: float) -> Iterator[tuple[float, Exchange]]:
        """GET /admin/exchanges: those logged after `since`, each with when, as they arrive.

        A line that is no exchange, or one that cannot be, is passed over. An answer cut short ends
        like a complete one: the rest is asked for at the next poll.
        """
        path, passed_over = "/admin/exchanges", 0
        try:
            with self._client.stream("GET", path, params={"since": repr(since)}) as answer:
                answer.raise_for_status()
                for line in answer.iter_lines():
                    try:
                        yield read_line(line)
                    except (ValueError, TypeError, KeyError) as error:
                        passed_over += 1
                        if passed_over == 1:
                            self._fault("an exchange", f"passed over, {error!r}: {line[:200]!r}")
            self._fine(path)
        except httpx.HTTPError as error:
            self._fault(path, self._silence(error))

    def _text(self, path: str) -> str | None:
        try:
            answer = self._client.get(path)
            answer.raise_for_status()
        except httpx.HTTPError as error:
            self._fault(path, self._silence(error))
            return None
        self._fine(path)
        return answer.text

    def _silence(self, error: httpx.HTTPError) -> str:
        return f"no answer from {self._client.base_url} ({error!r}), asking again"

    def _fault(self, where: str, what: str) -> None:
        if self._faults.get(where) != what:
            log.warning("%s: %s", where, what)
        self._faults[where] = what

    def _fine(self, where: str) -> None:
        if self._faults.pop(where, None) is not None:
            log.info("%s: answered again", where)


def read_line(line: str) -> tuple[float, Exchange]:
    """An exchange and when it was logged. ValueError, TypeError or KeyError when it is none."""
    stored = json.loads(line)
    exchange = Exchange.from_json(stored)
    counts = exchange.counts
    each = zip(counts.accepted_per_position, counts.judged_per_position, strict=True)
    if not all(0 <= accepted <= judged for accepted, judged in each):
        raise ValueError("more accepted than judged at a position")
    whole = (counts.rounds, counts.plain_forwards, counts.emitted, *counts.judged_per_position)
    if not all(isinstance(number, int) and number >= 0 for number in whole):
        raise ValueError("a count that is no whole number of 0 or more")
    logged = float(stored["logged"])
    times = (logged, exchange.started, exchange.queue_seconds)
    spans = (exchange.prefill_seconds, exchange.decode_seconds)
    if not all(math.isfinite(number) and number >= 0 for number in (*times, *spans)):
        raise ValueError("a time that is no number of 0 or more")
    return logged, exchange
