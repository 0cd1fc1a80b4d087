"""`paceline pin`, and what a person sees who went back a release."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from cli.main import app
from registry.store import Store
from tests.cli.test_commands import migrated as migrated
from tests.cli.test_commands import registry as registry
from tests.cli.test_commands import run
from tests.registry import tiny
from tests.registry.conftest import registered


def test_who_goes_back_a_release_stays_there_until_the_pin_is_lifted(
    registry: str, tmp_path: Path
) -> None:
    store = Store(registry)
    for number in (1, 2):
        target = tiny.target(tmp_path / f"target-{number}", seed=number)
        registered(store, target, tmp_path / str(number), "ngram")
    line = ("--pairing", "docstrings", "--registry", registry, "--home", tmp_path / "home")
    assert run("pin", *line)[0] == 1, "no release is serving yet"
    assert run("promote", "2", *line)[0] == 0
    assert run("promote", "1", *line)[0] == 1, "no decision about a draft"
    assert run("promote", "1", *line, "--force", "")[0] == 2, "of a variable that is not set"
    assert run("rollback", *line, "--reason", " ")[0] == 2
    assert run("pin", *line, "--reason", "")[0] == 2
    assert run("promote", "1", *line, "--force", "release 2 rhymes")[0] == 0

    told = CliRunner().invoke(app, ["status", *map(str, line)])
    assert "  pinned to release 1, whatever is released: release 2 rhymes\n" in told.stdout
    assert "champion, forced\n" in told.stdout
    (state,) = run("status", *line)[1]["pairings"]
    assert state["pinned"]["version"] == 1
    wanted = {"pairing": "docstrings", "pinned": False, "release": 1}
    assert run("pin", *line, "--lift")[:2] == (0, wanted)
    assert run("pin", *line, "--lift")[0] == 1
    assert run("pin", *line, "--reason", "a fair")[:2] == (0, {**wanted, "pinned": True})
    assert run("promote", "2", *line)[0] == 0, "a person's next promotion lifts it"
    assert run("status", *line)[1]["pairings"][0]["pinned"] is None
