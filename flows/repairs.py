"""What a person may have put right since something failed: a name for the state of what a
pairing's work reads. Another name means that what was given up is tried again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from configuration.reading import FILE
from configuration.settings import Pairing, Settings
from flows.steps import digest


def inputs(settings: Settings, line: Pairing) -> str:
    """The name. Reads a few lines of the file system, and no content but the configuration's."""
    files = (*map(str, (line.train_prompts, line.evaluation_prompts)), line.target)
    folders = (line.initial_draft, *map(str, line.adapters.values()))
    named = [one for one in (*files, *folders) if one]
    paths = [settings.home / FILE, *(settings.path(one) for one in named)]
    return digest({str(path): list(_state(path)) for path in paths})[:12]


def _state(path: Path) -> Iterator[list[int | str]]:
    """Of a file, or of what is directly in a folder: names, sizes and times."""
    try:
        found = sorted(path.iterdir()) if path.is_dir() else [path]
    except OSError:
        return
    for one in found:
        try:
            told = one.stat()
        except OSError:
            continue
        yield [one.name, told.st_size, told.st_mtime_ns]
