"""Toy models that the serving tests share, made once."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from serving.settings import ServeSettings
from serving.text import Text
from tests.serving.served import Served, serving
from tests.toys import toy_draft_folder, toy_target_folder

settings.register_profile("paceline", deadline=None)  # a shared machine stops for seconds
settings.load_profile("paceline")


@pytest.fixture(scope="session", autouse=True)
def frozen() -> Iterator[None]:
    """As a server does it: a swap's collection need not look through all that is imported."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session")
def target_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_target_folder(tmp_path_factory.mktemp("toys") / "toy", layers=2)


@pytest.fixture(scope="session")
def draft_folder(target_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_draft_folder(target_folder, tmp_path_factory.mktemp("toys") / "draft")


@pytest.fixture(scope="session")
def text(target_folder: Path) -> Text:
    return Text.load(target_folder)


@pytest.fixture(scope="session")
def server(
    target_folder: Path, draft_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A static server with a head, for tests that leave it as it is."""
    home = tmp_path_factory.mktemp("home")
    serve = ServeSettings(
        home=home,
        target=target_folder,
        draft=str(draft_folder),
        adaptive=False,  # a random head pays nothing, and is to draft all the same
        max_slots=4,
        max_context=300,
        body_bytes=200_000,
    )
    with serving(serve) as served:
        yield served


@pytest.fixture(scope="session")
def trial(
    target_folder: Path, draft_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A trial server with three arms."""
    arms = {"candidate": str(draft_folder), "ngram": "ngram", "none": "none"}
    home = tmp_path_factory.mktemp("home")
    with serving(ServeSettings(home=home, target=target_folder, trial=True, arms=arms)) as served:
        yield served
