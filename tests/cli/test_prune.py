"""What a person sees who did something by hand, and what is deleted when told to."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app
from registry.schema import prepare_database
from registry.store import Store
from speculation.records import Phase
from tests.cli.test_commands import run
from tests.registry import tiny
from tests.registry.conftest import registered

Line = tuple[str | Path, ...]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "mlflow").mkdir()
    prepare_database(f"sqlite:///{tmp_path / 'mlflow' / 'mlflow.db'}")
    return Store(f"sqlite:///{tmp_path / 'mlflow' / 'mlflow.db'}")


def test_what_is_to_go_is_shown_first_and_an_alias_moved_by_hand_is_told(
    store: Store, tmp_path: Path
) -> None:
    target = tiny.target(tmp_path / "target")
    for number, phase in enumerate([Phase.PASS, Phase.FAIL, Phase.FAIL, Phase.PASS], start=1):
        registered(store, target, tmp_path / str(number), seed=number, phase=phase)
    line: Line = ("--pairing", "docstrings", "--registry", store.url, "--home", tmp_path / "home")
    assert run("promote", "1", *line)[0] == 0
    older = ("--keep", "1", "--days", "0")

    code, shown, _ = run("prune", *line, *older)
    assert (code, shown["deleted"]) == (0, [])
    assert {pair["version"]: pair["goes"] for pair in shown["pairs"]} == {
        4: False,
        3: True,
        2: True,
        1: False,
    }
    assert [pair.version for pair in store.pairs("docstrings")] == [4, 3, 2, 1]
    code, shown, _ = run("prune", *line, *older, "--delete")
    assert (code, shown["deleted"]) == (0, [3, 2])
    assert [pair.version for pair in store.pairs("docstrings")] == [4, 1]
    assert run("prune", *line, *older, "--delete")[1]["deleted"] == []

    store.client.set_registered_model_alias("docstrings", "champion", "4")
    told = CliRunner().invoke(app, ["status", *map(str, line)])
    assert "  WARNING: the alias champion was moved by hand from v1 to v4" in told.stdout
    assert run("promote", "4", *line)[0] == 0
    assert "WARNING" not in CliRunner().invoke(app, ["status", *map(str, line)]).stdout


def test_a_mistyped_registry_is_told_and_makes_nothing(tmp_path: Path) -> None:
    target = tiny.target(tmp_path / "target")
    url = f"sqlite:///{tmp_path / 'no' / 'such' / 'mlflow.db'}"
    line: Line = ("--pairing", "docstrings", "--registry", url, "--home", tmp_path / "home")
    code, told, _ = run("release", target, *line)
    assert code == 4
    assert "where there is no database: check the path" in told["error"]
    assert not (tmp_path / "no").exists()
