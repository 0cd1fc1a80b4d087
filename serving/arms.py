"""Which drafts a server offers on a target, each checked against it before a weight is loaded.

Knows folders, manifests, fingerprints and compatibility; loads no model and knows no engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from registry.adapters import adapter_set
from registry.compatibility import compare, fits_adapters, fits_draft, fits_release
from registry.errors import ManifestError
from registry.fingerprint import Draft, Release, fingerprint_draft
from registry.manifest import FILE, PairManifest, pair_id, read_manifest
from registry.stamps import Stamp
from speculation.records import WITHOUT_WEIGHTS


class RefusedPairError(ValueError):
    """A draft that must not serve this target; the message is the reason."""


class OnDisk(Protocol):
    """A target, by where it lies and what it is."""

    @property
    def folder(self) -> Path: ...

    @property
    def release(self) -> Release: ...

    @property
    def adapters(self) -> Mapping[str, str]: ...  # that it is served with: name to digest


@dataclass(frozen=True, slots=True)
class Arm:
    """One draft of a server."""

    name: str  # what exchanges and metrics call it: its kind, or its name in a trial
    kind: str
    pair: str
    draft: str | Path  # "ngram", "none" or a folder
    verified: bool  # its manifest says it was validated for this very release
    context: int | None = None  # tokens it was judged to, beyond which it drafts nothing; None: any
    notes: tuple[str, ...] = ()  # what does not forbid the pair and is to be known
    stamp: Stamp | None = None  # of the draft's files as they were read; None: it has none


def static_arm(target: OnDisk, draft: str) -> Arm:
    """The arm of a static server. Raises RefusedPairError for a draft of another release, or one
    that was judged with other adapters than the target is served with."""
    place = _draft_place(draft)
    stamp, found = _look(place)
    manifest = _manifest_beside(place)
    arm = _arm(target, place, found, name=None, stamp=stamp)
    if manifest is None:
        return arm
    return _bound(arm, manifest, found, target, what=f"{draft}: ")


def trial_arms(target: OnDisk, arms: Mapping[str, str]) -> dict[str, Arm]:
    """A trial's arms: their tokens must match, the release they were made for need not."""
    places = {name: _draft_place(draft) for name, draft in arms.items()}
    return {
        name: _arm(target, place, found, name=name, stamp=stamp)
        for name, place in places.items()
        for stamp, found in [_look(place)]
    }


def registered_arm(target: OnDisk, manifest: PairManifest, folder: Path) -> Arm:
    """The arm of a pair from the registry, in `folder`. Raises RefusedPairError."""
    kind = manifest.draft.kind
    place: str | Path = kind if kind in WITHOUT_WEIGHTS else folder / "draft"
    stamp, found = _look(place)
    arm = _arm(target, place, found, name=None, stamp=stamp)
    return _bound(arm, manifest, found, target)


def weightless_beside(target: OnDisk, own: Mapping[str, Arm]) -> dict[str, Arm]:
    """`own`, and the drafts that need no weights and may be turned to at any time."""
    beside = {
        kind: _arm(target, kind, fingerprint_draft(kind), name=None)
        for kind in WITHOUT_WEIGHTS
        if kind not in own
    }
    return {**own, **beside}


def _bound(
    arm: Arm, manifest: PairManifest, found: Draft, target: OnDisk, *, what: str = ""
) -> Arm:
    """`arm` as its manifest vouches for it."""
    for fits in (fits_release(manifest, target.release), fits_draft(manifest, found)):
        if not fits.ok:
            raise RefusedPairError(what + "; ".join(fits.reasons))
    if arm.kind in WITHOUT_WEIGHTS:  # nothing was learnt that could give out
        return replace(arm, verified=True)
    if manifest.context_measured == 0:
        raise RefusedPairError(
            f"{what}{manifest.pair_id} was judged at no length at all (context_measured is 0): "
            "register it with a report"
        )
    if not (fits := fits_adapters(manifest, target.adapters)).ok:
        raise RefusedPairError(
            f"{what}{'; '.join(fits.reasons)}. Serve it with the adapters that it was judged with, "
            "or its draft unverified, from a folder without pair.json; `paceline evaluate "
            "--adapter NAME=DIR` tells how it does"
        )
    return replace(arm, verified=True, context=manifest.context_measured)


def _look(place: str | Path) -> tuple[Stamp | None, Draft]:
    """What a draft is, and of which files that was read."""
    stamp = Stamp.of(place) if isinstance(place, Path) else None
    return stamp, fingerprint_draft(place)


def _arm(
    target: OnDisk,
    place: str | Path,
    draft: Draft,
    *,
    name: str | None,
    stamp: Stamp | None = None,
) -> Arm:
    answer = compare(target.folder, place)
    if not answer.ok:
        raise RefusedPairError(
            f"{place} cannot draft for {target.folder}: {'; '.join(answer.reasons)}"
        )
    served = adapter_set(target.adapters)
    pair = pair_id(target.release.digest, draft.kind, draft.digest, served)
    return Arm(
        name or draft.kind,
        draft.kind,
        pair,
        place,
        verified=False,
        notes=answer.notes,
        stamp=stamp,
    )


def _draft_place(draft: str) -> str | Path:
    """A pair's folder stands for the draft in it."""
    if draft in WITHOUT_WEIGHTS:
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
