"""What a retrain is judged against, and whether anybody still wants it, as the registry has it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from configuration.settings import Settings
from flows.rivals import rivals
from flows.steps import write_json
from flows.superseded import superseded
from registry.fingerprint import fingerprint
from registry.pinning import pin
from registry.promotion import promote
from registry.schema import prepare_database
from registry.standing_in import go_live
from registry.store import Store
from tests.registry import tiny
from tests.registry.conftest import registered


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "mlflow.db"
    prepare_database(f"sqlite:///{path}")
    return path


@pytest.fixture
def settings(migrated: Path, tmp_path: Path) -> Settings:
    """A home whose release 1 is served by v1."""
    (tmp_path / "mlflow").mkdir()
    shutil.copy(migrated, tmp_path / "mlflow" / "mlflow.db")
    settings = Settings(home=tmp_path)
    store = Store(settings.registry_url)
    registered(store, tiny.target(tmp_path / "1"), tmp_path / "pair", pairing="line")
    promote(store, "line", 1, expect=None)
    return settings


def released(settings: Settings, seed: int) -> str:
    target = tiny.target(settings.home / f"release-{seed}", seed=seed)
    release = fingerprint(target)
    Store(settings.registry_url).register_release("line", target, release)
    return release.digest


def test_the_retrain_of_the_newest_or_of_the_pinned_release_is_wanted_and_no_other(
    settings: Settings,
) -> None:
    store = Store(settings.registry_url)
    digest = store.releases("line")[0].digest
    first = {"release": digest, "version": 1}
    assert superseded(settings, "line", first) == ""
    second = {"release": released(settings, 1), "version": 2}
    assert superseded(settings, "line", second) == ""
    assert superseded(settings, "line", first).startswith("release 2 came meanwhile")
    pin(store, "line", digest, "it rhymes")
    assert superseded(settings, "line", first) == superseded(settings, "line", second) == ""


def test_the_rivals_are_the_champion_and_the_draft_to_train_on_from(settings: Settings) -> None:
    store, work = Store(settings.registry_url), settings.home / "work"
    digest = released(settings, 1)
    assert rivals(settings, "line", digest, work, "look") == {"champion": 1, "parent": 1}
    target = settings.home / "release-1"
    go_live(store, "line", target, fingerprint(target), "ngram", why="it waited")
    noted = rivals(settings, "line", digest, work, "look")
    assert noted == {"champion": 0, "parent": 1}, "what stands in for its draft is no rival"
    made = registered(store, target, settings.home / "own", seed=3, pairing="line")
    promote(store, "line", made.version, expect=2)
    own = {"champion": made.version, "parent": made.version}
    assert rivals(settings, "line", digest, work, "look") == own, "of another retrain"
    write_json(work / "look.done.json", {"inputs": noted})
    write_json(work / "register.done.json", {"key": "", "result": {"version": made.version}})
    assert rivals(settings, "line", digest, work, "look") == noted, "of its own, asked again"
