"""Whom to tell what the loop did: a notification block, a signed webhook, or both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from registry.addresses import names_a_user, sayable


@dataclass(frozen=True, slots=True)
class Notices:
    """Whom to tell what was done and why."""

    block: str = ""  # one of Prefect's notification blocks, such as slack-webhook/ops
    webhook: str = ""  # URL that a notice is posted to, signed where PACELINE_NOTICE_SECRET is set
    style: Literal["paceline", "slack"] = "paceline"  # of what is posted there
    hosts: tuple[str, ...] = ()  # on private networks, or plain http, that it may go to by name

    def __post_init__(self) -> None:
        if self.block and self.block.count("/") != 1:
            raise ValueError(
                f"got block = {self.block!r}, wanted TYPE/NAME, such as slack-webhook/ops"
            )
        for host in self.hosts:
            if not host or "/" in host or "@" in host:
                raise ValueError(f"got hosts = {list(self.hosts)}, wanted names or addresses alone")
        if self.webhook:
            self._check_webhook()

    def _check_webhook(self) -> None:
        if names_a_user(self.webhook):
            raise ValueError(
                f"got webhook = {sayable(self.webhook)!r} with a name or a password, wanted it "
                "without what is before the @, which would be shown"
            )
        parts = urlsplit(self.webhook)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"got webhook = {self.webhook!r}, wanted an https URL, or nothing")
        if parts.scheme == "http" and parts.hostname not in self.hosts:
            raise ValueError(
                f"got webhook = {self.webhook!r}, wanted an https URL; plain http only to a host "
                "that hosts names"
            )
