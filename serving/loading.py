"""A target and its drafts in memory: what the engines' thread starts, steers and starts again.

Knows the engine's loaders and the tokenizer; knows nothing of HTTP, threads or MLflow. Reading runs
wherever the caller is; `start` and `restart` touch the target's forward and belong to the thread
that steps engines.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from registry.adapters import fingerprint_adapter
from registry.fingerprint import Release, fingerprint
from registry.stamps import Stamp, unchanged
from serving.arms import Arm, weightless_beside
from serving.arms import RefusedPairError as RefusedPairError
from serving.arms import registered_arm as registered_arm
from serving.arms import static_arm as static_arm
from serving.arms import trial_arms as trial_arms
from serving.settings import MOST_DRAFTED, ServeSettings, SettingsError
from serving.text import Text
from speculation.breaker import RECENT, DrafterFault
from speculation.drafters import Drafter, Make, read_draft
from speculation.drafting import OnFault
from speculation.engine import Engine
from speculation.requests import Limits
from speculation.target import Target, load_target

log = logging.getLogger("paceline.serving")


@dataclass(frozen=True)
class Host:
    """A loaded target with its tokenizer and adapters; draft-only swaps keep the object."""

    folder: Path
    release: Release
    target: Target
    text: Text
    adapters: Mapping[str, str] = field(default_factory=dict)  # name to digest
    adapter_folders: Mapping[str, Path] = field(default_factory=dict)
    stamp: Stamp | None = None  # of the folder's files as they were loaded

    @property
    def token_count(self) -> int:
        """Ids below it name tokens; an output layer may be wider."""
        return min(len(self.text), self.target.vocab_size)

    def computing(self) -> dict[str, Any]:
        """How its forwards are computed, for whoever compares two servers' speed."""
        dtype = str(self.target.dtype).removeprefix("torch.")
        device = str(self.target.device)
        return {"dtype": dtype, "device": device, "threads": torch.get_num_threads()}

    @classmethod
    def load(
        cls,
        folder: Path,
        settings: ServeSettings,
        release: Release | None = None,
        stamp: Stamp | None = None,
        adapters: Mapping[str, Path] | None = None,
    ) -> Host:
        """Load `folder` and its adapters, left out those of the settings. Its fingerprint may be
        known already, with the stamp of the files that it was taken from.

        Raises FolderError, ModelFolderError, TokenizerError, SettingsError, and ChangedFolderError
        where what was loaded need not be what the fingerprint tells.
        """
        _check_device(settings.device)
        if release is None:
            stamp, release = Stamp.of(folder), fingerprint(folder)
        with unchanged(stamp):
            text = Text.load(folder)
            target = load_target(folder, dtype=settings.dtype, device=settings.device)
        folders = dict(settings.adapters if adapters is None else adapters)
        return cls(folder, release, target, text, _adapters(target, folders), folders, stamp)


@dataclass(eq=False)
class Loaded:
    """A pair, or a trial's arms, on one target. The engine exists from `start` on."""

    host: Host
    arms: Mapping[str, Arm]  # the pair's own first, or all of a trial's
    draft_len: int  # K where it is not asked for and does not adapt
    slots: int
    max_len: int
    adaptive: bool  # K by what it pays, where it is not asked for
    adapts_if_asked: bool = False  # a trial's: K adapts for requests that say so
    prefix_tokens: int = 0
    version: str | None = None  # the registry's, of a following server
    steered: str | None = None  # the arm that an operator turned to
    _makes: Mapping[str, Make] = field(default_factory=dict)  # arms' drafters, over loaded weights
    _faults: Mapping[str, deque[DrafterFault]] = field(default_factory=dict)
    _engine: Engine | None = None
    _on_fault: OnFault | None = None
    paced: bool = field(init=False)  # its engine can adapt K, whatever an operator fixed it at
    configured: int = field(init=False)  # K as it was set up, whatever an operator turned it to

    def __post_init__(self) -> None:
        self.paced, self.configured = self.adaptive, self.draft_len

    @classmethod
    def prepare(
        cls,
        host: Host,
        arms: Mapping[str, Arm],
        settings: ServeSettings,
        version: str | None = None,
    ) -> Loaded:
        """Load the drafts' weights. Raises DraftError, and ChangedFolderError for a draft that was
        written since it was looked at."""
        max_len = min(settings.max_context, host.release.context_configured)
        if not settings.trial:
            arms = weightless_beside(host, arms)
        for arm in arms.values():
            for note in arm.notes:
                log.warning("pair %s: %s", arm.pair, note)
        return cls(
            host,
            arms,
            settings.draft_len,
            settings.max_slots,
            max_len,
            # What a trial's arms take must not depend on which came first, nor K on their pace,
            # but where the pace itself is to be measured.
            adaptive=settings.adaptive and not settings.trial,
            adapts_if_asked=settings.adaptive and settings.trial,
            prefix_tokens=0 if settings.trial else settings.prefix_tokens,
            version=version,
            _makes={name: _read(arm, host, settings, max_len) for name, arm in arms.items()},
            _faults={name: deque(maxlen=RECENT) for name in arms},
        )

    @property
    def own(self) -> Arm:
        """The pair's own draft, or a trial's first."""
        return next(iter(self.arms.values()))

    @property
    def default(self) -> Arm:
        """What requests that name no arm get."""
        return self.own if self.steered is None else self.arms[self.steered]

    @property
    def pair(self) -> str:
        return self.own.pair

    @property
    def text(self) -> Text:
        return self.host.text

    @property
    def adapters(self) -> Mapping[str, str]:
        """The target's adapters, name to digest."""
        return self.host.adapters

    @property
    def drafted_context(self) -> int | None:
        """Tokens beyond which nothing is drafted, for it was never judged there; None: no end."""
        return self.default.context

    @property
    def limits(self) -> Limits:
        """Which requests its engine takes."""
        return Limits(
            max_len=self.max_len,
            token_count=self.host.token_count,
            drafters=tuple(self.arms),
            adapters=tuple(self.host.target.adapters),
        )

    @property
    def engine(self) -> Engine:
        assert self._engine is not None, "start() comes first"
        return self._engine

    @property
    def running(self) -> Engine | None:
        """The engine, from whatever thread; None while there is none. To be read only."""
        return self._engine

    def length(self, asked: int | None, *, seeded: bool, adaptive: bool = False) -> int | None:
        """The K that a request's engine is told; None lets it adapt.

        What a seed gives must not depend on the pace of others, unless a trial asks for that.
        """
        if asked is not None:
            return asked
        if adaptive and self.adapts_if_asked:
            return None
        return None if self.adaptive and not seeded else self.draft_len

    def start(self, on_fault: OnFault | None = None) -> None:
        """Make the engine, its drafters and their caches. In the engines' thread."""
        self._on_fault = on_fault or _log_fault
        drafters: dict[str, Drafter] = {name: make() for name, make in self._makes.items()}
        self._engine = Engine(
            self.host.target,
            drafters,
            default=self.default.name,
            draft_len=self.draft_len,
            adaptive=self.paced or self.adapts_if_asked,
            slots=self.slots,
            max_len=self.max_len,
            token_count=self.host.token_count,
            prefix_tokens=self.prefix_tokens,
            on_fault=self._told,
        )

    def restart(self) -> None:
        """Replace an engine that failed, and its drafters' state; their weights stay."""
        self._engine = None  # its caches are freed before the new ones are made
        self.start(self._on_fault)

    def steer(self, drafter: str, draft_len: int | None) -> None:
        """Let `drafter` draft for requests that name no arm, from now on. In the engines' thread.

        `draft_len` is their K; None lets it adapt. Raises ValueError, and then changes nothing.
        """
        if drafter not in self.arms:
            raise ValueError(f"drafter {drafter!r}: wanted one of {', '.join(self.arms)}")
        if draft_len is not None and not 0 <= draft_len <= MOST_DRAFTED:
            raise ValueError(f"draft_len {draft_len}: wanted 0 to {MOST_DRAFTED}")
        self.steered, self.adaptive = drafter, draft_len is None
        # Adapting again, requests that keep to one K (a seed's) have the configured one again.
        self.draft_len = self.configured if draft_len is None else draft_len
        if self._engine is not None:
            self._engine.default, self._engine.draft_len = drafter, self.draft_len

    def faults(self) -> Mapping[str, Sequence[DrafterFault]]:
        """The latest faults of each arm's drafter."""
        return {name: tuple(faults) for name, faults in self._faults.items()}

    def _told(self, drafter: str, fault: DrafterFault) -> None:
        self._faults[drafter].append(fault)
        assert self._on_fault is not None
        self._on_fault(drafter, fault)


def _read(arm: Arm, host: Host, settings: ServeSettings, max_len: int) -> Make:
    """A draft's weights, if they are those that were looked at."""
    with unchanged(arm.stamp):
        return read_draft(
            arm.draft,
            host.target,
            rows=settings.max_slots,
            # Beyond what it was judged to a draft gets nothing to do.
            max_len=max_len if arm.context is None else min(max_len, arm.context),
            token_count=host.token_count,
        )


def _adapters(target: Target, folders: Mapping[str, Path]) -> dict[str, str]:
    """Load adapters, each looked at as bytes first; their digests by name."""
    digests: dict[str, str] = {}
    for name, folder in folders.items():
        stamp = Stamp.of(folder)
        digests[name] = fingerprint_adapter(folder)
        with unchanged(stamp):
            target.load_adapter(name, folder)
    return digests


def _check_device(device: str) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch's for a device that it has not
        first = str(error).partition("\n")[0]
        raise SettingsError(
            f"device {device!r} cannot be used ({first}): wanted cpu, or a GPU that torch sees, "
            "such as cuda or cuda:1"
        ) from error


def _log_fault(drafter: str, fault: DrafterFault) -> None:
    log.warning("the draft %s failed (%s): %s", drafter, fault.kind, fault.message)
