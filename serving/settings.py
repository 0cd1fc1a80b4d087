"""What one server is asked to be. Values only: no files are read and nothing is loaded here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from registry.addresses import names_a_user
from serving.keys import LEAST_CHARACTERS, SECRET, wrong_keys

MOST_DRAFTED = 16  # K at most, as the engine bounds it


class SettingsError(ValueError):
    """Settings that contradict each other or are out of range: got, wanted, what to do."""


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """One of three servers.

    Static: `target` and `draft`. Trial: `target`, `trial` and `arms`. Following: `pairing` and
    `registry`, which serves whatever pair the alias `champion` names.
    """

    home: Path  # holds serving/ with the exchange log, the pairs and the journal
    host: str = "127.0.0.1"
    port: int = 8000  # 0 takes any free one
    target: Path | None = None  # a Hugging Face directory
    draft: str = "ngram"  # "ngram", "none" or a draft's folder; static servers only
    trial: bool = False  # several drafters over one target, to be measured; on loopback only
    arms: Mapping[str, str] = field(
        default_factory=dict
    )  # a trial's drafts by name, first is default
    # PEFT folders by the name that clients ask for as `model`; static and trial servers.
    adapters: Mapping[str, Path] = field(default_factory=dict)
    pairing: str | None = None
    registry: str | None = None  # MLflow's URL
    registry_token: str | None = field(default=None, repr=False)  # a secret
    draft_len: int = 4  # K: tokens drafted a round
    adaptive: bool = True  # K by what it pays, from draft_len on; in a trial where asked
    max_slots: int = 8  # sequences that run at once; each costs a row of the caches
    max_context: int = 1024  # tokens of prompt and completion together
    # Tokens of prompt beginnings kept for prompts that begin alike; 0 keeps none, so that nobody
    # can tell from the time to a first token what others have asked.
    prefix_tokens: int = 4096
    dtype: str = "auto"  # "auto" is what the weights are stored in
    device: str = "cpu"
    threads: int | None = None  # of torch; None lets it choose
    together: bool | None = None  # two targets at once while swapping; None: if they fit
    capture: bool = False  # prompt and completion ids in the exchange log
    keep_exchanges_seconds: float = 30 * 24 * 3600.0  # then a line of the exchange log is deleted
    keep_exchanges_bytes: int = 2**30  # of the whole log; the oldest lines go first
    # Without any key everybody who reaches the port may ask, and the admin side is this host's.
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)  # secrets by tenant
    admin_keys: tuple[str, ...] = field(default=(), repr=False)  # secrets
    admin_port: int | None = None  # /admin and /metrics there only; None: beside /v1
    hook_secret: str | None = field(default=None, repr=False)  # signs the registry's webhook
    alert_token: str | None = field(default=None, repr=False)  # Alertmanager's, at /hooks/alerts
    hosts: tuple[str, ...] = ()  # Host names answered without a key, beside loopback's
    queue_tokens: int = 32_768  # prompt and max_tokens of all that wait; beyond it 429
    deadline_seconds: float = 300.0  # a request's, waiting included
    grace_seconds: float = 30.0  # from SIGTERM until what still runs is cancelled
    poll_seconds: float = 5.0  # between looks at the registry's alias
    probe_seconds: float = 60.0  # for a new pair to answer in, before it takes requests
    body_bytes: int = 4 * 2**20  # a longer request body gets 413
    most_messages: int = 512  # of a chat
    connections: int = 1024  # open at once; one more gets 503
    coalesce_tokens: int = 0  # tokens in each chunk of a stream; 0: as they come

    def __post_init__(self) -> None:
        if self.pairing is not None:
            if self.registry is None:
                raise SettingsError("a pairing without a registry: give --registry URL beside it")
            if names_a_user(self.registry):
                raise SettingsError(
                    "a registry's URL with a name or a password in it, which would be shown: give "
                    "it without, and a token as PACELINE_REGISTRY_TOKEN"
                )
            if self.target is not None or self.trial or self.arms:
                raise SettingsError(
                    "a pairing beside a target: give --pairing to follow a registry, or TARGET to "
                    "serve a folder"
                )
        elif self.target is None:
            raise SettingsError(
                "nothing to serve: give TARGET, or --pairing NAME to follow its champion"
            )
        if self.trial and not self.arms:
            raise SettingsError("a trial without arms: give at least one --arm NAME=DRAFT")
        if self.arms and not self.trial:
            raise SettingsError(
                "arms without --trial: several drafts are served to be measured only"
            )
        if self.trial and not is_loopback(self.host):
            raise SettingsError(
                f"a trial on host {self.host}: its drafts are not validated, so it listens on "
                "127.0.0.1 only"
            )
        if self.adapters and self.pairing is not None:
            raise SettingsError(
                "adapters beside a pairing: a champion is served with what it was judged with, so "
                "give --adapter with a TARGET only"
            )
        if self.model in self.adapters:
            raise SettingsError(
                f"an adapter named {self.model!r}, as the target is: clients ask for either by "
                "name, so give it another"
            )
        if (wrong := wrong_keys(self.keys, self.admin_keys)) is not None:
            raise SettingsError(wrong)
        if self.hook_secret is not None and len(self.hook_secret) < LEAST_CHARACTERS:
            raise SettingsError(
                f"a hook secret of {len(self.hook_secret)} characters: wanted {LEAST_CHARACTERS} "
                "or more, the same that the registry's webhook was made with"
            )
        if self.alert_token is not None and (
            len(self.alert_token) < LEAST_CHARACTERS or not SECRET.fullmatch(self.alert_token)
        ):
            raise SettingsError(
                f"an alert token of {len(self.alert_token)} characters: wanted {LEAST_CHARACTERS} "
                "or more of ASCII without spaces, such as `openssl rand -hex 24` prints"
            )
        if self.admin_port is not None:
            if not 0 <= self.admin_port <= 65_535:
                raise SettingsError(f"admin_port {self.admin_port}: wanted 0 to 65535")
            if self.admin_port == self.port != 0:
                raise SettingsError(
                    f"admin_port {self.admin_port} is the port itself: wanted another, or none to "
                    "have the admin side beside the API"
                )
        for name, low, high in (
            ("port", 0, 65_535),
            ("draft_len", 0, MOST_DRAFTED),
            ("max_slots", 1, 1024),
            ("max_context", 2, 2**20),
            ("prefix_tokens", 0, 2**31),
            ("queue_tokens", 1, 2**31),
            ("body_bytes", 1, 2**31),
            ("keep_exchanges_bytes", 1, 2**50),
            ("most_messages", 1, 2**20),
            ("connections", 1, 2**20),
            ("coalesce_tokens", 0, 4096),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise SettingsError(f"{name} {value}: wanted {low} to {high}")
        for name in (
            "deadline_seconds",
            "grace_seconds",
            "poll_seconds",
            "probe_seconds",
            "keep_exchanges_seconds",
        ):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise SettingsError(f"{name} {value}: wanted a time above 0")

    @property
    def model(self) -> str:
        """The name that clients ask for."""
        if self.pairing is not None:
            return self.pairing
        assert self.target is not None
        return Path(os.path.abspath(self.target)).name  # as it was named, through no link


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
