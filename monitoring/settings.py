"""The dials of `[monitoring]`: what is watched, how often, and how alarms live.

Standard library only, so that a configuration is read without a client or numpy. Where notices go
is `[notices]`; how often alarms may start a retrain are a pairing's limits. Neither is in here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

MOST_FLOOR_BUDGET = 0.069  # 1 / 14.4: above it the fastest burn rate could never be reached


@dataclass(frozen=True, slots=True)
class Source:
    """Replicas, or a Prometheus server, that acceptance is read from."""

    kind: Literal["builtin", "vllm", "sglang", "prometheus"] = "builtin"  # whose figures these are
    urls: tuple[str, ...] = ()  # of each replica; of prometheus its one API address
    pairing: str = ""  # which pairing it serves; empty: the only one
    pair: str = ""  # the pair's id, for vllm and sglang, which do not say which pair they serve
    drafter: str = "head"  # of that pair, where the source does not say
    draft_len: int = 0  # K that vllm was started with (num_speculative_tokens); 0: not known
    selector: str = ""  # prometheus: label matchers, such as job="vllm"
    adapter: Literal["builtin", "vllm"] = "builtin"  # prometheus: whose metric names to ask for

    def __post_init__(self) -> None:
        if not 0 <= self.draft_len <= 16:
            raise ValueError(f"got draft_len = {self.draft_len}, wanted 0 to 16")
        for url in self.urls:
            _check_url(url)
        if self.kind == "prometheus" and len(self.urls) > 1:
            raise ValueError(
                f"got kind = 'prometheus' with {len(self.urls)} urls, wanted one: "
                "the server that has scraped the replicas"
            )


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"got a url that is none ({error}), wanted http(s)://HOST:PORT") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError(f"got the url {url.rpartition('@')[2]!r}, wanted http(s)://HOST:PORT")
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            "got a url with a name or a password in it, wanted it without: a token has its place "
            "in PACELINE_SCRAPE_TOKEN or PACELINE_PROMETHEUS_TOKEN"
        )


@dataclass(frozen=True, slots=True)
class Monitoring:
    """What is watched, and how alarms live."""

    every_seconds: float = 2.0  # between looks; 15 is usual for replicas that others scrape too
    timeout_seconds: float = 5.0  # for one replica's whole answer
    floor_budget: float = 0.02  # share of requests that may lie below the floor
    cooldown_minutes: float = 30.0  # a matter that comes back sooner is the same alarm
    renotify_hours: float = 4.0  # until an open alarm is told again; doubled each time, to a day
    metrics_port: int = 0  # of the monitor's own /metrics on loopback; 0: none
    sources: Mapping[str, Source] = field(default_factory=dict)  # none: the home's own server

    def __post_init__(self) -> None:
        for name in ("every_seconds", "timeout_seconds", "renotify_hours"):
            if not getattr(self, name) > 0:
                raise ValueError(f"got {name} = {getattr(self, name)}, wanted more than 0")
        if not self.cooldown_minutes >= 0:
            raise ValueError(f"got cooldown_minutes = {self.cooldown_minutes}, wanted 0 or more")
        if not 0 < self.floor_budget <= MOST_FLOOR_BUDGET:
            raise ValueError(
                f"got floor_budget = {self.floor_budget}, wanted more than 0, "
                f"at most {MOST_FLOOR_BUDGET}"
            )
        if not 0 <= self.metrics_port <= 65_535:
            raise ValueError(f"got metrics_port = {self.metrics_port}, wanted 0 to 65535")
