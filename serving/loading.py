"""From folders to a pair in memory: what is checked before a draft may propose a single token.

Knows the registry's fingerprints and compatibility, the engine's loaders and the tokenizer; knows
nothing of HTTP, threads or MLflow. Reading runs wherever the caller is; `Loaded.start` and
`Loaded.restart` touch the target's forward and belong to the thread that steps engines.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from registry.compatibility import compare, fits_draft, fits_release
from registry.errors import ManifestError
from registry.fingerprint import Draft, Release, fingerprint, fingerprint_draft
from registry.manifest import FILE, PairManifest, pair_id, read_manifest
from serving.settings import ServeSettings
from serving.text import Text
from speculation.breaker import DrafterFault
from speculation.drafters import Drafter, load_drafter
from speculation.engine import Engine
from speculation.requests import Limits
from speculation.target import Target, load_target

log = logging.getLogger("paceline.serving")


class RefusedPairError(ValueError):
    """A draft that must not serve this target; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One draft of a server: of a static or a following one the only one."""

    name: str  # what exchanges and metrics call it: its kind, or its name in a trial
    kind: str
    pair: str
    draft: str | Path  # "ngram", "none" or a folder
    verified: bool  # its manifest says it was validated for this very release


@dataclass(frozen=True)
class Host:
    """A loaded target with its tokenizer; draft-only swaps keep the object."""

    folder: Path
    release: Release
    target: Target
    text: Text

    @property
    def token_count(self) -> int:
        """Ids below it name tokens; an output layer may be wider."""
        return min(len(self.text), self.target.vocab_size)

    @classmethod
    def load(cls, folder: Path, settings: ServeSettings) -> Host:
        """Fingerprint and load `folder`. Raises FolderError, ModelFolderError, TokenizerError."""
        release = fingerprint(folder)
        text = Text.load(folder)
        target = load_target(folder, dtype=settings.dtype, device=settings.device)
        return cls(folder, release, target, text)


@dataclass(eq=False)
class Loaded:
    """A pair, or a trial's arms, on one target. The engine exists from `start` on."""

    host: Host
    arms: Mapping[str, Arm]  # the first is the default
    draft_len: int
    slots: int
    max_len: int
    drafters: Mapping[str, Drafter]
    prefix_tokens: int = 0
    version: str | None = None  # the registry's, of a following server
    _engine: Engine | None = None

    @classmethod
    def prepare(
        cls,
        host: Host,
        arms: Mapping[str, Arm],
        settings: ServeSettings,
        version: str | None = None,
    ) -> Loaded:
        """Load the drafts. Raises DraftError."""
        max_len = min(settings.max_context, host.release.context_configured)
        drafters = _drafters(host, arms, settings.max_slots, max_len)
        return cls(
            host,
            arms,
            settings.draft_len,
            settings.max_slots,
            max_len,
            drafters,
            # What a trial's arms take must not depend on which came first.
            0 if settings.trial else settings.prefix_tokens,
            version,
        )

    @property
    def default(self) -> Arm:
        return next(iter(self.arms.values()))

    @property
    def pair(self) -> str:
        return self.default.pair

    @property
    def text(self) -> Text:
        return self.host.text

    @property
    def limits(self) -> Limits:
        """Which requests its engine takes."""
        return Limits(
            max_len=self.max_len,
            token_count=self.host.token_count,
            drafters=tuple(self.drafters),
            adapters=tuple(self.host.target.adapters),
        )

    @property
    def engine(self) -> Engine:
        assert self._engine is not None, "start() comes first"
        return self._engine

    def start(self) -> None:
        """Make the engine and its caches. In the engines' thread."""
        self._engine = Engine(
            self.host.target,
            self.drafters,
            default=self.default.name,
            draft_len=self.draft_len,
            slots=self.slots,
            max_len=self.max_len,
            token_count=self.host.token_count,
            prefix_tokens=self.prefix_tokens,
            on_fault=_log_fault,
        )

    def restart(self) -> None:
        """Replace an engine that failed, and the drafters, whose state is part of it."""
        self._engine = None  # its caches are freed before the new ones are made
        self.drafters = _drafters(self.host, self.arms, self.slots, self.max_len)
        self.start()


def static_arm(host: Host, draft: str) -> Arm:
    """The arm of a static server. Raises RefusedPairError for a draft of another release."""
    place = _draft_place(draft)
    arm = _arm(host, place, name=None)
    manifest = _manifest_beside(place)
    if manifest is None:
        return arm
    fits = fits_release(manifest, host.release)
    if not fits.ok:
        raise RefusedPairError(f"{draft}: {'; '.join(fits.reasons)}")
    return Arm(arm.name, arm.kind, arm.pair, arm.draft, verified=True)


def trial_arms(host: Host, arms: Mapping[str, str]) -> dict[str, Arm]:
    """A trial's arms: their tokens must match, the release they were made for need not."""
    return {name: _arm(host, _draft_place(draft), name=name) for name, draft in arms.items()}


def registered_arm(host: Host, manifest: PairManifest, folder: Path) -> Arm:
    """The arm of a pair from the registry, in `folder`. Raises RefusedPairError."""
    fits = fits_release(manifest, host.release)
    if not fits.ok:
        raise RefusedPairError("; ".join(fits.reasons))
    kind = manifest.draft.kind
    place: str | Path = kind if kind in ("ngram", "none") else folder / "draft"
    found = fingerprint_draft(place)
    bound = fits_draft(manifest, found)
    if not bound.ok:
        raise RefusedPairError("; ".join(bound.reasons))
    arm = _arm(host, place, name=None, found=found)
    return Arm(arm.name, arm.kind, arm.pair, arm.draft, verified=True)


def _arm(host: Host, place: str | Path, *, name: str | None, found: Draft | None = None) -> Arm:
    answer = compare(host.folder, place)
    if not answer.ok:
        raise RefusedPairError(
            f"{place} cannot draft for {host.folder}: {'; '.join(answer.reasons)}"
        )
    draft = found or fingerprint_draft(place)
    pair = pair_id(host.release.digest, draft.kind, draft.digest)
    return Arm(name or draft.kind, draft.kind, pair, place, verified=False)


def _draft_place(draft: str) -> str | Path:
    """A pair's folder stands for the draft in it."""
    if draft in ("ngram", "none"):
        return draft
    folder = Path(draft)
    return folder / "draft" if (folder / FILE).is_file() and (folder / "draft").is_dir() else folder


def _manifest_beside(place: str | Path) -> PairManifest | None:
    """The manifest that came with a draft's folder, if one did."""
    if isinstance(place, str):
        return None
    for folder in (place, place.parent) if place.name == "draft" else (place,):
        if (folder / FILE).is_file():
            try:
                return read_manifest(folder)
            except ManifestError as error:
                raise RefusedPairError(
                    f"{error}; remove it to serve the draft unverified"
                ) from error
    return None


def _drafters(host: Host, arms: Mapping[str, Arm], slots: int, max_len: int) -> dict[str, Drafter]:
    tokens = host.token_count
    return {
        name: load_drafter(arm.draft, host.target, rows=slots, max_len=max_len, token_count=tokens)
        for name, arm in arms.items()
    }


def _log_fault(drafter: str, fault: DrafterFault) -> None:
    log.warning("the draft %s failed (%s): %s", drafter, fault.kind, fault.message)
