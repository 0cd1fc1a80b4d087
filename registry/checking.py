"""Everything that can be said of a target and a draft before a model is loaded: one answer.

A bare draft is compared by its tokens and shapes. A pair's folder is also held to its pair.json:
the release, the draft, the files and the adapters that it was judged with.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from registry.adapters import adapter_fits, fingerprint_adapter
from registry.answers import Compatibility
from registry.compatibility import compare, fits_adapters, fits_draft, fits_release
from registry.digests import Progress, no_progress
from registry.errors import DigestError, FolderError
from registry.fingerprint import fingerprint, fingerprint_draft
from registry.folders import weights_of
from registry.listed import verify_listed
from registry.manifest import FILE, PairManifest, read_manifest
from registry.tokens import tokenizer_of
from registry.weights import target_weights_of
from speculation.records import WITHOUT_WEIGHTS


def check(
    target: Path,
    draft: str | Path,
    *,
    adapters: Mapping[str, Path] | None = None,
    progress: Progress = no_progress,
) -> Compatibility:
    """Whether `draft` can serve the target in the folder `target`, with every reason.

    `draft` is "ngram", "none", a draft's folder, or a pair's folder as it is stored or exported.
    `adapters` are the target's, by the names that they are served under. Raises FolderError and
    ManifestError for folders that are broken.
    """
    target_weights_of(target)  # a folder without weights is no target, whatever the draft
    tokenizer_of(target)
    manifest, place = _pair(draft)
    if isinstance(place, Path):
        weights_of(place)
    answer = compare(target, place)
    named = adapters or {}
    for name, folder in named.items():
        fits = adapter_fits(target, folder)
        answer = answer.also(
            Compatibility.of([f"adapter {name}: {reason}" for reason in fits.reasons], fits.notes)
        )
    if manifest is None:
        return answer
    digests = {name: fingerprint_adapter(folder) for name, folder in named.items()}
    for fits in (
        fits_release(manifest, fingerprint(target, progress=progress)),
        fits_draft(manifest, fingerprint_draft(place, progress=progress)),
        fits_adapters(manifest, digests),
        _whole(manifest, Path(draft)),
        _judged(manifest),
    ):
        answer = answer.also(fits)
    return answer


def _pair(draft: str | Path) -> tuple[PairManifest | None, str | Path]:
    """The manifest of a pair's folder and where its draft lies; None for a bare draft."""
    if draft in WITHOUT_WEIGHTS:
        return None, draft
    folder = Path(draft)
    if not (folder / FILE).is_file():
        return None, folder
    manifest = read_manifest(folder)
    if manifest.draft.kind in WITHOUT_WEIGHTS:
        return manifest, manifest.draft.kind
    return manifest, folder / "draft" if (folder / "draft").is_dir() else folder


def _whole(manifest: PairManifest, folder: Path) -> Compatibility:
    """Whether the files are those listed, the report and the training among them."""
    try:
        verify_listed(manifest, folder)
    except (DigestError, FolderError) as error:  # a link that leads outside is none of its files
        return Compatibility(False, (str(error),))
    return Compatibility(True)


def _judged(manifest: PairManifest) -> Compatibility:
    if manifest.draft.kind in WITHOUT_WEIGHTS:
        return Compatibility(True)
    if manifest.context_measured == 0:
        return Compatibility(False, (f"{manifest.pair_id} was judged at no length at all",))
    if manifest.context_measured == manifest.release.context_configured:
        return Compatibility(True)
    return Compatibility(
        True,
        notes=(
            f"{manifest.pair_id} was judged up to {manifest.context_measured} tokens: beyond them "
            "the server decodes without it",
        ),
    )
