"""MLflow is away while a flow runs: it says so and tries again, and goes on when MLflow is back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prefect import flow

from configuration.settings import Pairing, Settings
from configuration.writing import write_default
from flows import line, promote, respond, watch
from flows.retrain import step
from registry.errors import StoreError
from registry.schema import prepare_database
from registry.store import Store
from tests.registry import tiny
from tests.registry.conftest import registered

pytestmark = pytest.mark.usefixtures("prefect_server")
AWAY = "the registry at http://127.0.0.1:5000 does not answer: start it, or check the URL"
ALARM = {"id": "a-1", "pair": "p-1", "release": "r", "cause": "no_gain", "statement": "no gain"}
FLOWS: dict[str, tuple[Any, Callable[[], dict[str, Any]]]] = {
    "watch": (watch, dict),
    "promote": (promote, lambda: {"pairing": "one", "version": 1, "expect": None}),
    "respond": (respond, lambda: {"alarm": ALARM}),
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A pairing with a pair that passed."""
    write_default(tmp_path / "paceline.toml", {"one": Pairing()})
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    settings = Settings(home=tmp_path)
    (tmp_path / "mlflow").mkdir()
    prepare_database(settings.registry_url)
    target = tiny.target(tmp_path / "target")
    registered(Store(settings.registry_url), target, tmp_path / "pair", "ngram", pairing="one")
    return settings


@pytest.mark.slow  # a database is made for each
@pytest.mark.parametrize("name", FLOWS)
def test_a_flow_tries_again_when_mlflow_is_away_and_tells_of_it_when_it_stays_so(
    home: Settings, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    module, given = FLOWS[name]
    asked: list[bool] = []

    def ask() -> None:
        asked.append(True)
        if len(asked) in away:
            raise StoreError(AWAY)

    def store(found: Settings) -> Store:
        ask()
        return line.store(found)

    def lacking(*_: object) -> list[Any]:
        ask()
        return []

    if name == "watch":  # it asks for each pairing apart, and nothing is to be started here
        monkeypatch.setattr(module, "lacking", lacking)
    else:
        monkeypatch.setattr(module, "store", store)
    tried = getattr(module, name).with_options(retry_delay_seconds=0)
    assert tried.retries
    away = range(1, 2)
    assert tried(**given())
    assert len(asked) >= 2

    asked.clear()
    away = range(1, 100)
    state = tried(**given(), return_state=True)
    assert state.is_failed()
    assert AWAY in str(state.message)
    assert len(asked) == 1 + tried.retries


def test_a_step_is_tried_again_when_mlflow_is_away_and_not_when_the_caller_has_to_act() -> None:
    tried: list[Exception] = []

    def work(faults: list[Exception]) -> str:
        if len(tried) < len(faults):
            tried.append(faults[len(tried)])
            raise tried[-1]
        return "done"

    task = step(hours=1)(work).with_options(retry_delay_seconds=0)

    @flow
    def both() -> None:
        assert task([StoreError(AWAY), StoreError(AWAY)]) == "done"
        tried.clear()
        with pytest.raises(ValueError, match="a mistyped name"):
            task([ValueError("a mistyped name"), ValueError("another")])
        assert len(tried) == 1

    both()
