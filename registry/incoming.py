"""Folders that somebody may still be writing to: which may be releases, and whether each is whole.

Whole is told by content, whatever wrote it: the configuration parses, every weight file that is
named is there and as long as its own header says, and the tokenizer loads. What content cannot tell
(optional files that come last, bytes that a writer reserved before it filled them) is what a quiet
time and a marker file are for. Reads headers, never weights; loads without torch.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from registry.errors import FolderError
from registry.folders import adapter_weights_of, json_of, weights_of
from registry.tokens import tokenizer_of

MEANT = (".safetensors", ".json", ".jinja", ".model", ".txt")  # what a release is made of
UNFINISHED = (".tmp", ".temp", ".part", ".partial", ".incomplete", ".unfinished", ".crdownload")
UNFINISHED_NAME = re.compile(r"\.~.*|\..+\.[A-Za-z0-9]{6}")  # editors' and rsync's own
MOST_FILES = 10_000  # in one folder; a model has tens
ADAPTER_CONFIG = "adapter_config.json"


def candidates(place: Path) -> list[Path]:
    """The folders of `place` that may be releases: itself where it is one, else those in it.

    Links are followed, those inside only to what lies inside; hidden names and those of unfinished
    copies are passed over. Raises FolderError where there is no such folder.
    """
    home = place.resolve()
    if not home.is_dir():
        raise FolderError(f"{place}: got no folder, wanted one that releases are put into")
    if is_one(home):
        return [home]
    found: dict[Path, None] = {}
    for path in sorted(_inside(home)):
        if path.name.startswith(".") or path.suffix in UNFINISHED:
            continue
        leads_to = path.resolve()
        if leads_to.is_dir() and leads_to.is_relative_to(home) and leads_to != home:
            found[leads_to] = None
    return list(found)


def is_one(folder: Path) -> bool:
    """Whether it looks like a model or an adapter, whole or not."""
    return any((folder / name).exists() for name in ("config.json", ADAPTER_CONFIG))


def is_adapter(folder: Path) -> bool:
    """Whether it is a LoRA adapter, and no model with one beside it."""
    return (folder / ADAPTER_CONFIG).exists() and not (folder / "config.json").exists()


def unfinished(folder: Path, *, marker: str = "") -> str:
    """Why the folder is not a whole model or adapter yet; "" where it is, or is whole and no
    release for another reason, which its fingerprint says."""
    names = [path.name for path in _inside(folder)]
    for name in names:
        if name.endswith(UNFINISHED) or UNFINISHED_NAME.fullmatch(name):
            return f"{name} is being written"
    if marker and marker not in names:
        return f"{marker} is not there yet"
    config = ADAPTER_CONFIG if is_adapter(folder) else "config.json"
    try:
        if json_of(folder, config) is None:
            return f"{config} is not there yet"
        if config == ADAPTER_CONFIG:
            adapter_weights_of(folder)
        else:
            weights_of(folder)
            tokenizer_of(folder)
    except FolderError as error:
        return str(error).removeprefix(f"{folder}: ").removeprefix(f"{folder}{os.sep}")
    return ""


def signature(folder: Path) -> str:
    """A name for the state of a folder's files: another one as soon as one was written to."""
    told = hashlib.sha256()
    for path in sorted(_inside(folder)):
        if path.suffix not in MEANT:
            continue
        try:
            state = path.stat()
        except OSError:  # renamed away while we look
            told.update(f"{path.name}\0gone\0".encode())
            continue
        facts = (state.st_size, state.st_mtime_ns, state.st_ino)
        told.update(f"{path.name}\0{facts}\0".encode())
    return told.hexdigest()


def written(folder: Path) -> float:
    """When one of its files was last written to, seconds since the epoch; 0 for an empty folder."""
    times = []
    for path in _inside(folder):
        try:
            times.append(path.stat().st_mtime)
        except OSError:
            continue
    return max(times, default=0.0)


def _inside(folder: Path) -> Iterator[Path]:
    try:
        for count, path in enumerate(folder.iterdir(), start=1):
            if count > MOST_FILES:
                raise FolderError(f"{folder}: holds more than {MOST_FILES} files: is this a model?")
            yield path
    except OSError as error:
        raise FolderError(f"{folder}: cannot be read: {error.strerror}") from error
