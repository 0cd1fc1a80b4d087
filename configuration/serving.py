"""The dials of the built-in server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from configuration.rules import positive


@dataclass(frozen=True, slots=True)
class Serving:
    """The built-in server."""

    host: str = "127.0.0.1"  # who may connect; 0.0.0.0 is everyone who reaches this machine
    port: int = 8000  # 0 takes a free one and says which
    max_slots: int = 8  # requests decoded at once
    max_context: int = 1024  # prompt and answer together, in tokens
    admin_port: int = 0  # for /admin and /metrics alone; 0 has them beside the API
    hosts: tuple[str, ...] = ()  # names it is asked by, beside this host's own, where no key is set
    queue_tokens: int = 32_768  # of all requests that wait, prompt and answer; then they get 429
    body_megabytes: int = 4  # of a request's body; a longer one gets 413
    most_messages: int = 512  # of a chat; more get 400
    connections: int = 1024  # open at once; beyond it requests get 503
    deadline_seconds: float = 300.0  # of one request, waiting included
    grace_seconds: float = 30.0  # for requests that run to end in, after SIGTERM
    probe_seconds: float = 60.0  # for a pair to answer in, once loaded; a large one may need more
    poll_seconds: float = 5.0  # between looks at the registry
    together: Literal["auto", "always", "never"] = "auto"  # two targets in memory during a swap
    coalesce_tokens: int = 0  # in each chunk of a stream, to hide its rhythm; 0: as they come
    capture: bool = False  # what users ask and get, as token ids, in the exchange log
    keep_exchanges_days: float = 30.0  # then the exchange log's lines are deleted
    keep_exchanges_megabytes: int = 1024  # of the exchange log; the oldest lines go first

    def __post_init__(self) -> None:
        positive(self, "max_slots", "max_context", "queue_tokens", "keep_exchanges_megabytes")
        positive(self, "body_megabytes", "most_messages", "connections")
        if self.body_megabytes > 1024:
            raise ValueError(f"got body_megabytes = {self.body_megabytes}, wanted 1 to 1024")
        for name in ("probe_seconds", "poll_seconds"):
            if not getattr(self, name) > 0:
                raise ValueError(f"got {name} = {getattr(self, name)}, wanted more than 0")
        for name in ("port", "admin_port"):
            if not 0 <= getattr(self, name) <= 65_535:
                raise ValueError(f"got {name} = {getattr(self, name)}, wanted 0 to 65535")
        if self.admin_port == self.port != 0:
            raise ValueError(f"got admin_port = {self.port}, wanted another than port")
        for name in ("deadline_seconds", "grace_seconds", "keep_exchanges_days"):
            if getattr(self, name) <= 0:
                raise ValueError(f"got {name} = {getattr(self, name)}, wanted more than 0")
        if not 0 <= self.coalesce_tokens <= 4096:
            raise ValueError(f"got coalesce_tokens = {self.coalesce_tokens}, wanted 0 to 4096")
