"""The toy target and the head for it that most tests of the method decode with, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from speculation.target import Target, load_target
from tests.toys import toy_draft_folder, toy_target_folder


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Of the target and of its head; to be read."""
    home = tmp_path_factory.mktemp("toys")
    target = toy_target_folder(home / "target")
    return target, toy_draft_folder(target, home / "draft")


@pytest.fixture(scope="session")
def target(folders: tuple[Path, Path]) -> Target:
    """Float32; whoever changes it loads one for itself."""
    return load_target(folders[0])
