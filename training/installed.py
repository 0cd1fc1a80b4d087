"""Documented source of what is installed, by the name that it is imported by.

Found without importing it: a package's import may take seconds or start things. Knows where
packages lie; corpus.py knows what is in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from training.corpus import Documented, documented, standard_library

STDLIB = "stdlib"


def installed(name: str) -> Iterator[Documented]:
    """What is documented of the package `name`; of the standard library where it is "stdlib".

    Raises ValueError where no package of that name is installed.
    """
    if name == STDLIB:
        return documented(standard_library())
    return _of_package(name, _folders(name))


def _of_package(name: str, folders: list[Path]) -> Iterator[Documented]:
    for folder in folders:
        for entry in documented(folder):
            yield replace(entry, name=f"{name}.{entry.name}")  # two packages may have one module


def _folders(name: str) -> list[Path]:
    spec = find_spec(name) if name.isidentifier() else None  # of a dotted name it imports the first
    folders = [Path(each) for each in (spec and spec.submodule_search_locations) or ()]
    if not folders:
        raise ValueError(
            f"got {name!r}, wanted {STDLIB!r} or a package that is installed here, by the name it "
            "is imported by (sklearn, not scikit-learn)"
        )
    return folders
