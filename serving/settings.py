"""What one server is asked to be. Values only: no files are read and nothing is loaded here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

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
    pairing: str | None = None
    registry: str | None = None  # MLflow's URL
    registry_token: str | None = field(default=None, repr=False)  # a secret
    draft_len: int = 4  # K: tokens drafted a round
    slots: int = 8  # sequences that run at once; each costs a row of the caches
    max_len: int = 1024  # tokens of prompt and completion together
    # Tokens of prompt beginnings kept for prompts that begin alike; 0 keeps none, so that nobody
    # can tell from the time to a first token what others have asked.
    prefix_tokens: int = 4096
    dtype: str = "auto"  # "auto" is what the weights are stored in
    device: str = "cpu"
    threads: int | None = None  # of torch; None lets it choose
    capture: bool = False  # prompt and completion ids in the exchange log
    queue_tokens: int = 32_768  # prompt and max_tokens of all that wait; beyond it 429
    deadline_seconds: float = 300.0  # a request's, waiting included
    grace_seconds: float = 30.0  # from SIGTERM until what still runs is cancelled
    poll_seconds: float = 5.0  # between looks at the registry's alias
    body_bytes: int = 4 * 2**20  # a longer request body gets 413

    def __post_init__(self) -> None:
        if self.pairing is not None:
            if self.registry is None:
                raise SettingsError("a pairing without a registry: give --registry URL beside it")
            if self.target is not None or self.trial or self.arms:
                raise SettingsError(
                    "a pairing beside a target: give --pairing to follow a registry, or TARGET to "
                    "serve a folder"
                )
        elif self.target is None:
            raise SettingsError("nothing to serve: give TARGET, or --pairing with --registry")
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
        for name, low, high in (
            ("port", 0, 65_535),
            ("draft_len", 0, MOST_DRAFTED),
            ("slots", 1, 1024),
            ("max_len", 2, 2**20),
            ("prefix_tokens", 0, 2**31),
            ("queue_tokens", 1, 2**31),
            ("body_bytes", 1, 2**31),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise SettingsError(f"{name} {value}: wanted {low} to {high}")
        for name in ("deadline_seconds", "grace_seconds", "poll_seconds"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise SettingsError(f"{name} {value}: wanted a time above 0")

    @property
    def model(self) -> str:
        """The name that clients ask for."""
        if self.pairing is not None:
            return self.pairing
        assert self.target is not None
        return self.target.resolve().name


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
