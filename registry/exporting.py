"""A pair as a folder that others can use, and back: Hugging Face's layout, or `speculators`.

Exported, the draft's files lie at the top, as `from_pretrained` and vLLM want them, and pair.json
beside them; the report and how it was made keep their folders. Imported, every file that pair.json
lists is compared with its digest on the way. Knows folders and manifests; of the store only that
it registers.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from registry.compatibility import Compatibility, compare, fits_draft, fits_release
from registry.configs import is_speculators
from registry.digests import digest_of_file
from registry.errors import DigestError, FolderError, ManifestError
from registry.fingerprint import fingerprint, fingerprint_draft
from registry.folders import confined, json_of, weights_of
from registry.listed import DRAFT, exported_name, listed_file
from registry.manifest import (
    FILE,
    PairManifest,
    read_manifest,
    verify_files,
    with_files,
    write_manifest,
)
from registry.markdown import plain
from registry.speculators import Carried, to_speculators
from registry.speculators_read import from_speculators
from registry.versions import PairVersion
from speculation.records import WITHOUT_WEIGHTS

if TYPE_CHECKING:
    from registry.store import Store

COPIED = (".json", ".safetensors", ".jinja", ".txt", ".model", ".md")
LAYOUTS = ("huggingface", "speculators")


def export_pair(
    pair: Path, into: Path, *, layout: str = "huggingface", target: str = "", draft_len: int = 4
) -> Carried:
    """Write the pair of the folder `pair` (pair.json, draft/ …) into the new folder `into`.

    `target` is what the speculators layout names as the head's target, by default the place that
    pair.json knows; `draft_len` is the K it proposes. Raises DigestError where the pair is not
    whole, and FolderError for a folder that is not empty and a draft that the layout has no place
    for. A failure leaves nothing in `into`.
    """
    manifest = read_manifest(pair)
    verify_files(manifest, pair)
    if layout not in LAYOUTS:
        raise ValueError(f"layout: got {layout!r}, wanted one of {', '.join(LAYOUTS)}")
    with _filled(into) as beside:
        left: tuple[str, ...] = ()
        if layout == "speculators":
            if manifest.draft.kind in WITHOUT_WEIGHTS:
                raise FolderError(
                    f"{pair}: the draft {manifest.draft.kind} has no weights, and the speculators "
                    "layout holds nothing else"
                )
            left = to_speculators(
                pair / "draft",
                beside,
                target=target or manifest.release_uri,
                draft_len=draft_len,
                weights=_release_here(manifest),
            ).left
        for name in manifest.files:
            if layout == "huggingface" or not name.startswith(DRAFT):
                _copy(pair / name, beside / exported_name(name))
        write_manifest(manifest, beside)
    return Carried(into, left)


def _release_here(manifest: PairManifest) -> Path | None:
    """The folder of the pair's release, None where it is not on this host any more."""
    folder = Path(manifest.release_uri)
    if not folder.is_dir() or fingerprint(folder).digest != manifest.release.digest:
        return None
    return folder


def import_pair(source: Path, into: Path, *, target: Path) -> tuple[Carried, Compatibility]:
    """Write the exported pair or the bare draft in `source` into the new folder `into`, and say
    whether it can serve the target in the folder `target`.

    With a pair.json it becomes a pair's folder, whose manifest must be of exactly this release and
    draft; without one, a draft's, which was judged on nothing. Raises DigestError where files are
    not those that pair.json lists, FolderError and ManifestError.
    """
    manifest = read_manifest(source) if (source / FILE).is_file() else None
    left: tuple[str, ...] = ()
    with _filled(into) as beside:
        draft = beside if manifest is None else beside / "draft"
        if manifest is None or manifest.draft.kind not in WITHOUT_WEIGHTS:
            if is_speculators(json_of(source, "config.json") or {}):
                left = from_speculators(source, draft, target=target).left
            elif manifest is None:
                _copy_draft(source, draft)
        if manifest is None:
            answer = compare(target, draft)
        else:
            answer = _restored(manifest, source, beside, target)
    return Carried(into, left), answer


def register_imported(store: Store, pairing: str, pair: Path, *, source: Path) -> PairVersion:
    """Keep the imported pair of the folder `pair` as a version of the pairing, unjudged.

    A verdict does not travel: speeds are another machine's and the rules another gate's. Raises as
    `Store.register_pair`, and ManifestError for a report that is no JSON object.
    """
    manifest = read_manifest(pair)
    report = pair / "report" / "report.json"
    read: object = {}
    if report.is_file():
        try:
            read = json.loads(report.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ManifestError(f"{report}: is not JSON: {error}") from error
    if not isinstance(read, dict):
        raise ManifestError(f"{report}: got {type(read).__name__}, wanted an object")
    why = f"Imported from {plain(source)}, with the report it was judged by elsewhere."
    return store.register_pair(pairing, manifest, pair, report=read, verdict=None, description=why)


def _restored(manifest: PairManifest, source: Path, beside: Path, target: Path) -> Compatibility:
    """Fill the pair's folder `beside` with what pair.json lists, and say whether it fits."""
    made = (beside / "draft").is_dir()  # from another layout: its files are not those listed
    kept = {n: d for n, d in manifest.files.items() if not (made and n.startswith(DRAFT))}
    for name, digest in kept.items():
        path = listed_file(source, exported_name(name))
        _copy(path, beside / name)
        if (got := digest_of_file(beside / name)) != digest:  # of the copy: it is what is kept
            raise DigestError(f"{path}: got sha256 {got[:12]}…, wanted {digest[:12]}… by {FILE}")
    weightless = manifest.draft.kind in WITHOUT_WEIGHTS
    draft: str | Path = manifest.draft.kind if weightless else beside / "draft"
    if not (bound := fits_draft(manifest, fingerprint_draft(draft))).ok:
        raise DigestError(f"{source}: {bound.reasons[0]}: its files were changed")
    here = replace(manifest, release_uri=str(target.resolve()))
    write_manifest(with_files(here, beside), beside)
    answers = (fits_release(manifest, fingerprint(target)), compare(target, draft))
    return Compatibility.of(
        [reason for answer in answers for reason in answer.reasons],
        [note for answer in answers for note in answer.notes],
    )


def _copy(path: Path, place: Path) -> None:
    if place.exists():
        raise FolderError(f"{path}: two files of the pair would be {place.name}: rename one")
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, place)


def _copy_draft(source: Path, draft: Path) -> None:
    """A bare draft's own files; code and weights of other kinds stay where they are."""
    weights_of(source)  # sound, before anything is copied
    for path in sorted(source.iterdir()):
        if path.suffix in COPIED and path.is_file():
            _copy(confined(source, path.name), draft / path.name)


@contextmanager
def _filled(into: Path) -> Iterator[Path]:
    """A folder to fill that becomes `into` when all went well, and else is gone."""
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise FolderError(f"{into}: is not empty: name a new folder")
    into.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{into.name}.", dir=into.parent))
    try:
        beside.chmod(0o755)  # mkdtemp's own is for its owner alone
        yield beside
        if into.is_dir():
            into.rmdir()
        beside.rename(into)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
