"""The look at everything: what is wrong with one pairing keeps it from no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from configuration.settings import Pairing, Settings
from configuration.writing import write_default
from flows import watch as module
from flows.watch import watch
from registry.errors import StoreError
from registry.fingerprint import fingerprint
from registry.schema import prepare_database
from registry.store import Store
from tests.registry import tiny

pytestmark = pytest.mark.usefixtures("prefect_server")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Two pairings, each with a release that has no pair."""
    write_default(tmp_path / "paceline.toml", {"one": Pairing(), "two": Pairing()})
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    url = Settings(home=tmp_path).registry_url
    (tmp_path / "mlflow").mkdir()
    prepare_database(url)
    store = Store(url)
    target = tiny.target(tmp_path / "target")
    for name in ("one", "two"):
        store.register_release(name, target, fingerprint(target))
    return store


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of what was started; and alarms are delivered."""
    keys: list[str] = []

    def start(name: str, parameters: Any, key: str) -> None:
        keys.append(key)

    monkeypatch.setattr(module, "start_once", start)
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


def test_a_registry_that_is_away_fails_the_look_once_the_alarms_are_delivered(
    home: Store, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> None:
        raise StoreError("MLflow does not answer")

    monkeypatch.setattr(module, "heal", away)
    with pytest.raises(StoreError, match="does not answer"):
        watch.with_options(retries=0)()
    assert started == ["alarms"]
