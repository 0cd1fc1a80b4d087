"""The folder of downloaded pairs: what may stay, what a cut download left, what a pair is.

Knows files and manifests; knows neither the registry nor engines. Names that are no pair's are
never built into a path.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from registry.adapters import fingerprint_adapter
from registry.errors import NotFoundError
from registry.fingerprint import Release, fingerprint
from registry.manifest import SAFE_PAIR_ID, PairManifest, read_manifest, verify_files
from registry.stamps import Stamp
from serving.arms import Arm, RefusedPairError, registered_arm


@dataclass(frozen=True, slots=True)
class TargetOnDisk:
    """A target that is not loaded."""

    folder: Path
    release: Release
    adapters: Mapping[str, str] = field(default_factory=dict)  # name to digest
    adapter_folders: Mapping[str, Path] = field(default_factory=dict)
    stamp: Stamp | None = None  # of its files as they were read; None: nobody looks again


@dataclass(frozen=True, slots=True)
class CheckedPair:
    """A pair of which everything was checked that needs no memory."""

    pair: str
    version: str
    target: TargetOnDisk
    arm: Arm


class PairsOnDisk:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def place(self, pair: str) -> Path:
        """Where a pair lies, if it does. Raises RefusedPairError for a name that is no pair's."""
        if not SAFE_PAIR_ID.fullmatch(pair):
            raise RefusedPairError(f"{pair!r} is no pair's name")
        return self.folder / pair

    def check(self, pair: str, version: str, served: TargetOnDisk | None) -> CheckedPair:
        """Compare files with their manifest, and both with the target on this host.

        The target that is `served` is not read again where it is the pair's, nor are its adapters.
        Raises RefusedPairError and RegistryError.
        """
        folder = self.place(pair)
        manifest = read_manifest(folder)
        if manifest.pair_id != pair:
            raise RefusedPairError(f"{folder} holds pair {manifest.pair_id}, wanted {pair}")
        verify_files(manifest, folder, under="draft/")
        if served is not None and served.release.digest == manifest.release.digest:
            target = served
        else:
            place = _target_folder(manifest)
            stamp = Stamp.of(place)
            target = TargetOnDisk(place, fingerprint(place), stamp=stamp)
        if target.adapters != manifest.adapters:
            folders = _adapter_folders(manifest)
            target = replace(target, adapters=dict(manifest.adapters), adapter_folders=folders)
        return CheckedPair(pair, version, target, registered_arm(target, manifest, folder))

    def clean(self) -> None:
        """Remove what a download that was cut short has left."""
        for leftover in self._folders():
            if not SAFE_PAIR_ID.fullmatch(leftover.name):
                shutil.rmtree(leftover, ignore_errors=True)

    def prune(self, kept: Iterable[str]) -> None:
        """Remove all pairs but these."""
        names = set(kept)
        for folder in self._folders():
            if SAFE_PAIR_ID.fullmatch(folder.name) and folder.name not in names:
                shutil.rmtree(folder, ignore_errors=True)

    def _folders(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        return [one for one in self.folder.iterdir() if one.is_dir() and not one.is_symlink()]


def _target_folder(manifest: PairManifest) -> Path:
    """Where the release lies. Raises as `_folder_at` does."""
    return _folder_at(manifest.release_uri, f"release {manifest.release.digest[:12]}")


def _adapter_folders(manifest: PairManifest) -> dict[str, Path]:
    """Where the adapters lie that the pair was judged with. Raises as `_folder_at` does, and
    RefusedPairError for one that is not what it was then."""
    folders: dict[str, Path] = {}
    for name, judged in manifest.adapters.items():
        if name not in manifest.adapter_uris:
            raise RefusedPairError(
                f"{manifest.pair_id} was judged with the adapter {name}, and its manifest does not "
                "say where that lives: register the pair again"
            )
        folder = _folder_at(manifest.adapter_uris[name], f"adapter {name}")
        if (found := fingerprint_adapter(folder)) != judged:
            raise RefusedPairError(
                f"the adapter {name} in {folder} is {found[:12]}, {manifest.pair_id} was judged "
                f"with {judged[:12]}: put that back, and have what is there now judged from a "
                "folder of its own"
            )
        folders[name] = folder
    return folders


def _folder_at(uri: str, what: str) -> Path:
    """The folder that a URI names. Raises RefusedPairError for one that can be no folder here, and
    NotFoundError for one that is not there now."""
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise RefusedPairError(f"the place {uri!r} of {what} cannot be read: {error}") from error
    if parts.scheme not in ("", "file") or parts.netloc not in ("", "localhost"):
        raise RefusedPairError(f"{what} lives at {uri}: wanted a folder of this host")
    folder = Path(unquote(parts.path) if parts.scheme == "file" else uri)
    if not folder.is_dir():
        raise NotFoundError(f"the folder {folder} of {what} is not there: put it back")
    return folder
