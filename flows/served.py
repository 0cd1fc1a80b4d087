"""The servers of a pairing: what each serves, and the operator's hand on it.

Knows the built-in server's admin side. A server that does not answer is a row that says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from configuration.settings import Pairing, Settings
from monitoring.answers import AnswerError, read_line
from registry.loopback import on_this_machine

ASK_SECONDS = 3.0
DO_SECONDS = 60.0  # for a steering hand: it waits for the engine's thread
LIFE_SECONDS, LOOK_SECONDS = 200.0, 5.0  # for a draft that was loaded anew to show that it lives
LIFE_REQUESTS, ALIVE = 5, 0.05  # by so many requests, and more than this of what was judged
LIFE_LINES = 1000  # of the exchange log
AT_ONCE = 16  # servers that are asked side by side
SHOWN = ("pair", "version", "drafter", "release", "draft_len", "trouble")


def served(found: Settings, line: Pairing) -> list[dict[str, Any]]:
    """What each server serves: `SHOWN`, its address, and `fault`: empty, or why it did not say."""

    def ask(server: str) -> dict[str, Any]:
        try:
            told = _call(found, "GET", server, "/admin/pair", seconds=ASK_SECONDS)
        except (httpx.HTTPError, ValueError) as error:
            return {"server": server, "fault": f"{type(error).__name__}: {error}"}
        return {"server": server, "fault": "", **{name: told.get(name) for name in SHOWN}}

    if not line.servers:
        return []
    with ThreadPoolExecutor(max_workers=min(AT_ONCE, len(line.servers))) as threads:
        return list(threads.map(ask, line.servers))


def hurry(found: Settings, server: str) -> None:
    """Have a server look at the registry now, and try again what it refused. Raises HTTPError."""
    _call(found, "POST", server, "/admin/swap", seconds=ASK_SECONDS)


def reload(found: Settings, line: Pairing) -> tuple[str, bool]:
    """Have each server load the pair that it serves anew, from files that are checked again; what
    came of it, in words, and whether all of them do."""
    return _each(found, line, "POST", "/admin/swap", {"reload": True}, "loads its pair anew")


def lives(
    found: Settings,
    line: Pairing,
    pair: str,
    *,
    since: float,  # seconds since the epoch
    seconds: float = LIFE_SECONDS,
    sleep: Callable[[float], object] = time.sleep,
) -> bool:
    """Whether on every server that gets requests tokens of the pair's draft are accepted since.

    Waits for so many requests; where too few come to tell, it is not known to live.
    """
    waited, left = 0.0, list(line.servers)
    while left and waited < seconds:
        left = [server for server in left if not _accepts(found, server, pair, since)]
        if left:
            sleep(LOOK_SECONDS)
            waited += LOOK_SECONDS
    return not left


def _accepts(found: Settings, server: str, pair: str, since: float) -> bool:
    judged = accepted = requests = 0
    try:
        log = httpx.get(
            server.rstrip("/") + "/admin/exchanges",
            params={"since": repr(since), "limit": LIFE_LINES},
            headers=found.operator_headers,
            timeout=ASK_SECONDS,
            trust_env=not on_this_machine(server),
        ).raise_for_status()
    except httpx.HTTPError:
        return False
    for line in log.iter_lines():
        try:
            _, exchange = read_line(line.encode(), now=time.time())
        except AnswerError:
            continue
        if exchange.pair == pair and exchange.started >= since and exchange.counts.judged:
            requests += 1
            judged += exchange.counts.judged
            accepted += exchange.counts.accepted
    return requests >= LIFE_REQUESTS and accepted > ALIVE * judged


def steer(found: Settings, line: Pairing, asked: Mapping[str, Any]) -> str:
    """Turn each server to another drafter or K, until it swaps; what came of it, in words."""
    words = ", ".join(f"{name} {value}" for name, value in asked.items())
    return _each(found, line, "PATCH", "/admin/pair", asked, f"was turned to {words}")[0]


def _each(
    found: Settings, line: Pairing, method: str, path: str, body: Mapping[str, Any], did: str
) -> tuple[str, bool]:
    """All at once, so that those that hang take one time-out together."""

    def ask(server: str) -> tuple[str, bool]:
        try:
            _call(found, method, server, path, body, seconds=DO_SECONDS)
        except (httpx.HTTPError, ValueError) as error:
            return f"{server} did not do it: {error}", False
        return f"{server} {did}", True

    if not line.servers:
        return "no server is configured", False
    with ThreadPoolExecutor(max_workers=min(AT_ONCE, len(line.servers))) as threads:
        told = list(threads.map(ask, line.servers))
    return "; ".join(what for what, _ in told), all(done for _, done in told)


def _call(
    found: Settings,
    method: str,
    server: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    *,
    seconds: float,
) -> dict[str, Any]:
    answer = httpx.request(
        method,
        server.rstrip("/") + path,
        json=body,
        headers=found.operator_headers,
        timeout=seconds,
        trust_env=not on_this_machine(server),
    )
    answer.raise_for_status()
    told = answer.json()
    if not isinstance(told, dict):
        raise ValueError(f"got {answer.text[:80]!r}, wanted a JSON object")
    return told
