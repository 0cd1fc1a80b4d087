"""The pair manifest: one draft version bound to the exact release it was validated for.

`pair.json` is its form on disk, beside the pair's files, and lists their digests, so that whoever
fetches a pair can tell that nothing is missing or changed. Knows no store and no server.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from registry.adapters import adapter_set
from registry.digests import digest_of_file
from registry.errors import DigestError, ManifestError
from registry.fingerprint import Draft, Release
from registry.folders import MOST_LEVELS, deeper_than
from speculation.records import DRAFT_KINDS

FILE = "pair.json"
SCHEMA = 1
SAFE_PAIR_ID = re.compile(r"p-[0-9a-f]{16}")
HEX = frozenset("0123456789abcdef")
RELEASE_DIGESTS = ("digest", "weights", "tokenizer", "chat_template", "generation", "configuration")


@dataclass(frozen=True, slots=True)
class Making:
    """How a draft was made."""

    recipe: Mapping[str, Any] = field(default_factory=dict)
    data: str = ""  # digest of the training data
    prompts_train: tuple[str, ...] = ()  # sorted sha256 of the questions that it learned from
    prompts_validation: tuple[str, ...] = ()  # and of those that chose its checkpoint
    parent: str | None = None  # pair_id of the pair it was warm-started from
    code_version: str = ""


@dataclass(frozen=True, slots=True)
class PairManifest:
    """One pair. `files` is filled when the pair is registered."""

    release: Release
    release_uri: str  # where the target lives; not a part of its identity
    draft: Draft
    context_measured: int  # tokens; the longest bucket that was judged
    making: Making = Making()
    adapters: Mapping[str, str] = field(default_factory=dict)  # of the target, judged with: digests
    adapter_uris: Mapping[str, str] = field(default_factory=dict)  # and where they live
    engine: str = ""
    engine_version: str = ""
    report: str = ""  # the report's digest
    files: Mapping[str, str] = field(default_factory=dict)  # path below the pair -> sha256

    @property
    def pair_id(self) -> str:
        """The same draft on the same release with the same adapters is the same pair, however often
        it is registered."""
        served = adapter_set(self.adapters)
        return pair_id(self.release.digest, self.draft.kind, self.draft.digest, served)

    def to_json(self) -> dict[str, Any]:
        """Plain data; `from_json` is the way back."""
        return {"schema": SCHEMA, "pair_id": self.pair_id, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, stored: object, *, where: str = FILE) -> PairManifest:
        """The manifest in `stored`. `ManifestError` names the field, what was got and wanted."""
        if not isinstance(stored, Mapping):
            raise ManifestError(f"{where}: got {type(stored).__name__}, wanted an object")
        if stored.get("schema") != SCHEMA:
            raise ManifestError(
                f"{where}: schema: got {stored.get('schema')!r}, wanted {SCHEMA}: it was written "
                "by another version of Paceline"
            )
        body = {key: value for key, value in stored.items() if key not in {"schema", "pair_id"}}
        manifest: PairManifest = _read(cls, body, where)
        _check(manifest, where)
        if stored.get("pair_id") != manifest.pair_id:
            raise ManifestError(
                f"{where}: pair_id: got {stored.get('pair_id')!r}, wanted {manifest.pair_id}, "
                "which follows from the release, its adapters and the draft"
            )
        return manifest


def pair_id(release_digest: str, draft_kind: str, draft_digest: str, adapters: str = "") -> str:
    """A pair's name: "p-" and 16 hexadecimal digits. `adapters` is the `adapter_set` of those that
    the release is served with; without any the name is that of a time when there were none."""
    parts = (release_digest, draft_kind, draft_digest, *([adapters] if adapters else []))
    named = "\n".join(parts).encode()
    return "p-" + hashlib.sha256(named).hexdigest()[:16]


def write_manifest(manifest: PairManifest, folder: Path) -> Path:
    """Write pair.json into the folder, whole or not at all."""
    _check(manifest, FILE)
    path, beside = folder / FILE, folder / (FILE + ".partial")
    try:
        with beside.open("w", encoding="utf-8") as file:
            json.dump(manifest.to_json(), file, indent=2, sort_keys=True)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    return path


def read_manifest(folder: Path) -> PairManifest:
    """Read the folder's pair.json. `ManifestError` when it is missing, broken or impossible."""
    path = folder / FILE
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ManifestError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"{path}: is not JSON: {error}") from error
    if isinstance(stored, dict) and deeper_than(MOST_LEVELS, stored):
        raise ManifestError(f"{path}: got JSON nested deeper than {MOST_LEVELS} levels")
    return PairManifest.from_json(stored, where=str(path))


def with_files(manifest: PairManifest, folder: Path) -> PairManifest:
    """The manifest with the digest of every file below the folder but pair.json itself."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = {
        path.relative_to(folder).as_posix(): digest_of_file(path)
        for path in paths
        if path.name not in {FILE, FILE + ".partial"} or path.parent != folder
    }
    return dataclasses.replace(manifest, files=files)


def verify_files(manifest: PairManifest, folder: Path, *, under: str = "") -> None:
    """Check the files whose path starts with `under`. `DigestError` names the first bad one."""
    for name, digest in sorted(manifest.files.items()):
        if not name.startswith(under):
            continue
        path = folder / name
        if not path.is_file():
            raise DigestError(f"{path}: is missing, and {FILE} lists it")
        if (got := digest_of_file(path)) != digest:
            raise DigestError(f"{path}: got sha256 {got[:12]}…, wanted {digest[:12]}…")


def _check(manifest: PairManifest, where: str) -> None:
    release, draft = manifest.release, manifest.draft
    digests = {f"release.{name}": getattr(release, name) for name in RELEASE_DIGESTS}
    digests["draft.digest"] = draft.digest
    optional = {
        "release.adapter": release.adapter,
        "making.data": manifest.making.data,
        "report": manifest.report,
    }
    digests |= {name: digest for name, digest in optional.items() if digest}
    digests |= {f"adapters[{name!r}]": digest for name, digest in manifest.adapters.items()}
    digests |= {f"files[{name!r}]": digest for name, digest in manifest.files.items()}
    for name, digest in digests.items():
        if len(digest) != 64 or not HEX.issuperset(digest):
            raise ManifestError(f"{where}: {name}: got {digest!r}, wanted 64 hexadecimal digits")
    if lost := sorted(manifest.adapter_uris.keys() - manifest.adapters.keys()):
        raise ManifestError(
            f"{where}: adapter_uris: got {lost[0]!r}, which is none of its adapters"
        )
    parent = manifest.making.parent
    if parent is not None and not SAFE_PAIR_ID.fullmatch(parent):
        raise ManifestError(f"{where}: making.parent: got {parent!r}, wanted a pair_id")
    if draft.kind not in DRAFT_KINDS:
        raise ManifestError(
            f"{where}: draft.kind: got {draft.kind!r}, wanted one of {', '.join(DRAFT_KINDS)}"
        )
    if not 0 <= manifest.context_measured <= release.context_configured:
        raise ManifestError(
            f"{where}: context_measured: got {manifest.context_measured}, wanted 0 to "
            f"{release.context_configured}, the release's context_configured"
        )
    for name in manifest.files:
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or ".." in parts or "\\" in name or "\0" in name:
            raise ManifestError(f"{where}: files: got {name!r}, wanted a path inside the pair")


def _read(kind: Any, value: object, where: str) -> Any:
    """`value` as `kind`: a dataclass, a tuple, a mapping, a union with None, or a plain type."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _read_record(kind, value, where)
    origin = get_origin(kind)
    if origin is UnionType:
        wanted = next(inner for inner in get_args(kind) if inner is not NoneType)
        return None if value is None else _read(wanted, value, where)
    if origin is tuple and isinstance(value, list):
        return tuple(_read(get_args(kind)[0], inner, where) for inner in value)
    if origin is Mapping and isinstance(value, Mapping):
        return {str(k): _read(get_args(kind)[1], inner, where) for k, inner in value.items()}
    if kind is Any or (isinstance(kind, type) and type(value) is kind):
        return value
    wanted_name = getattr(kind, "__name__", str(kind))
    raise ManifestError(f"{where}: got {value!r:.80}, wanted {wanted_name}")


def _read_record(kind: type, value: object, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise ManifestError(f"{where}: got {value!r:.80}, wanted an object")
    hints = get_type_hints(kind)
    if unknown := sorted(value.keys() - hints.keys()):
        raise ManifestError(f"{where}: {unknown[0]}: is no field of {kind.__name__}")
    for one in dataclasses.fields(kind):
        required = one.default is one.default_factory is dataclasses.MISSING
        if required and one.name not in value:
            raise ManifestError(f"{where}: {one.name}: is missing")
    return kind(**{k: _read(hints[k], inner, f"{where}: {k}") for k, inner in value.items()})
