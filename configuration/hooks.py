"""Where the worker hears the registry's webhooks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HookListener:
    """Where the worker hears the registry's webhooks, with PACELINE_HOOK_SECRET set."""

    host: str = "127.0.0.1"  # who may connect
    port: int = 0  # 0: nobody listens, and releases are seen by looking each minute
    url: str = ""  # that the registry posts to, where it reaches the port by another name

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise ValueError(f"got port = {self.port}, wanted 0 to 65535")
        if self.url and not self.url.startswith(("http://", "https://")):
            raise ValueError(f"got url = {self.url!r}, wanted an http(s) URL, or nothing")
