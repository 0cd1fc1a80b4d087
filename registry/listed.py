"""Where the files lie that a pair.json lists, in a pair's folder as it is stored or exported.

Exported, the draft's files lie at the top. Nothing outside the folder is one of them, whatever a
link says. Knows names and digests; copies nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

from registry.digests import digest_of_file
from registry.errors import DigestError
from registry.folders import confined
from registry.manifest import FILE, PairManifest

DRAFT = "draft/"


def exported_name(name: str) -> str:
    """Where an exported folder keeps the pair's file `name`."""
    return name.removeprefix(DRAFT)


def listed_file(folder: Path, name: str) -> Path:
    """The file below the folder. Raises FolderError where a link leads outside, DigestError where
    it is missing."""
    path = folder
    for part in name.split("/"):
        path = confined(path, part)
    if not path.is_file():
        raise DigestError(f"{path}: is missing, and {FILE} lists it")
    return path


def verify_listed(manifest: PairManifest, folder: Path) -> None:
    """Check every file that is listed, in either layout. Raises as `listed_file`, and DigestError
    for one that was changed.

    A server keeps of a pair its draft alone: of such a copy no more is asked.
    """
    stored = (folder / DRAFT).is_dir()
    beside = {name.partition("/")[0] for name in manifest.files if not name.startswith(DRAFT)}
    drafts_only = stored and not beside & set(os.listdir(folder))
    for name, digest in sorted(manifest.files.items()):
        if drafts_only and not name.startswith(DRAFT):
            continue
        path = listed_file(folder, name if stored else exported_name(name))
        if (got := digest_of_file(path)) != digest:
            raise DigestError(f"{path}: got sha256 {got[:12]}…, wanted {digest[:12]}… by {FILE}")
