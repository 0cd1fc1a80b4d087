"""The look at everything: what is wrong with one pairing keeps it from no other."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from configuration.settings import Pairing, Settings
from configuration.sources import Source
from configuration.writing import write_default
from flows import episodes
from flows import watch as module
from flows.episodes import want_retrain
from flows.line import settings
from flows.steps import alone
from flows.watch import watch
from registry.errors import StoreError
from registry.fingerprint import fingerprint
from registry.schema import prepare_database
from registry.store import Store
from tests.registry import tiny

pytestmark = pytest.mark.usefixtures("prefect_server")


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with two pairings, each with a release that has no pair: made once, and copied."""
    home = tmp_path_factory.mktemp("released")
    write_default(home / "paceline.toml", {"one": Pairing(), "two": Pairing()})
    (home / "mlflow").mkdir()
    url = Settings(home=home).registry_url
    prepare_database(url)
    target = tiny.target(home / "target")
    for name in ("one", "two"):
        Store(url).register_release(name, target, fingerprint(target))
    return home


@pytest.fixture
def home(released: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    shutil.copytree(released, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    return Store(Settings(home=tmp_path).registry_url)


@pytest.fixture
def words() -> dict[str, tuple[str, str]]:
    """How work stands, by its key; due where it is not said."""
    return {}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, words: dict[str, tuple[str, str]]) -> list[str]:
    """The keys of what was started; and alarms are delivered."""
    keys: list[str] = []

    def start(name: str, parameters: Any, key: str, *, inputs: str) -> tuple[None, str, str]:
        keys.append(key)
        return None, "alive", ""

    monkeypatch.setattr(module, "start_once", start)
    monkeypatch.setattr(module, "under_way", lambda *flows: [])
    for asks in (module, episodes):
        monkeypatch.setattr(asks, "stands", lambda key, *, inputs: words.get(key, ("due", "")))
    monkeypatch.setattr(module, "deliver_alarms", lambda home: keys.append("alarms"))
    return keys


def test_an_alias_that_names_no_pair_stops_its_own_pairing_alone(
    home: Store, started: list[str]
) -> None:
    home.client.create_registered_model("one")
    home.client.create_model_version("one", source="somebody/elses")
    home.client.set_registered_model_alias("one", "champion", "1")
    told = watch()
    digest = home.releases("two")[0].digest
    assert started == [f"retrain:two:{digest}", "alarms"]
    assert list(told["faults"]) == ["one"]
    assert "is no pair" in told["faults"]["one"]


def test_heavy_work_of_a_home_begins_one_at_a_time_and_the_rest_waits_outside_of_any_run(
    home: Store, started: list[str], words: dict[str, tuple[str, str]]
) -> None:
    told = watch()["under_way"]
    one, two = (f"retrain:{name}:{home.releases(name)[0].digest}" for name in ("one", "two"))
    assert started == [one, "alarms"]
    assert told[two] == f"waits its turn: {one} begins"
    started.clear()
    words[one] = ("done", "its run is over")
    assert two in watch()["under_way"]
    assert started == [f"go_live:one:{home.releases('one')[0].digest}", two, "alarms"]


def test_a_look_that_finds_another_under_way_leaves_everything_to_it(
    home: Store, started: list[str], tmp_path: Path
) -> None:
    with alone(tmp_path / "flows" / "watch.lock"):
        assert watch() == {"skipped": "another look is under way"}
    assert started == []
    assert "skipped" not in watch()


def test_a_release_whose_retrain_was_given_up_is_withheld_no_longer(
    home: Store, started: list[str], words: dict[str, tuple[str, str]]
) -> None:
    digest = home.releases("one")[0].digest
    words[f"retrain:one:{digest}"] = ("given up", "the run otter is Failed: no such folder")
    watch()
    assert f"go_live:one:{digest}" in started


def test_a_retrain_that_an_alarm_wants_is_asked_for_until_it_ends(
    home: Store, started: list[str], words: dict[str, tuple[str, str]]
) -> None:
    digest = home.releases("one")[0].digest
    for name in ("one", "two"):
        words[f"retrain:{name}:{home.releases(name)[0].digest}"] = ("alive", "")
    key = want_retrain(settings(), "one", digest, "alarm-7", "acceptance fell")
    for _ in range(2):  # the worker may have been killed in between
        watch()
        assert started == [key, "alarms"]
        started.clear()
    words[key] = ("done", "its run is over")
    watch()
    words[key] = ("due", "")
    assert key not in watch()["under_way"], "what is over is over"


def test_a_registry_that_is_away_fails_the_look_once_the_alarms_are_delivered(
    home: Store, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> None:
        raise StoreError("MLflow does not answer")

    monkeypatch.setattr(module, "heal", away)
    with pytest.raises(StoreError, match="does not answer"):
        watch.with_options(retries=0)()
    assert started == ["alarms"]


def test_a_release_that_a_source_shows_is_taken_in_and_what_is_not_whole_is_told(
    home: Store, started: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source("folder", str(tmp_path / "models"), settle_seconds=0.0)
    (tmp_path / "paceline.toml").unlink()
    write_default(tmp_path / "paceline.toml", {"new": Pairing(sources=(source,))})
    tiny.target(tmp_path / "models" / "1", seed=1)
    (tmp_path / "models" / "half").mkdir()
    told: list[dict[str, str]] = []
    monkeypatch.setattr(module, "create_table_artifact", lambda rows, **named: told.extend(rows))
    watch()
    assert [key.partition(":")[0] for key in started] == ["take_in", "alarms"]
    waits = [row["why"] for row in told if row["action"] == "none"]
    assert waits == [f"{tmp_path / 'models' / 'half'}: config.json is not there yet"]
