"""Names and champions that are somebody else's: what a person is told, and the way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from registry.store import Store
from tests.cli.test_commands import migrated as migrated
from tests.cli.test_commands import registry as registry
from tests.cli.test_commands import run
from tests.registry import tiny
from tests.registry.conftest import registered

SENTENCE = "a registered model that Paceline did not make: name another pairing"


def test_another_teams_model_is_no_pairing_and_is_left_as_it_is(
    registry: str, tmp_path: Path
) -> None:
    store = Store(registry)
    store.client.create_registered_model("spam-filter")
    store.client.create_model_version("spam-filter", source=str(tmp_path), run_id="0" * 32)
    store.client.set_registered_model_alias("spam-filter", "champion", "1")
    line = ("--pairing", "spam-filter", "--registry", registry, "--home", tmp_path / "home")
    for command in (
        ("promote", "1"),
        ("promote", "7", "--force", "why not"),
        ("rollback",),
        ("rollback", "--to", "1"),
        ("rollback", "--to", "ngram"),
        ("pin",),
        ("pin", "--lift"),
        ("export", str(tmp_path / "out")),
        ("export", str(tmp_path / "out"), "--version", "1"),
    ):
        code, told, _ = run(*command, *line)
        assert (code, told["error"]) == (2, f"spam-filter is {SENTENCE}"), command
    (state,) = run("status", *line)[1]["pairings"]
    assert state["warnings"] == [f"spam-filter is {SENTENCE}"]
    (model,) = store.client.search_registered_models()
    assert (model.aliases, model.description, model.tags) == ({"champion": 1}, None, {})


def test_a_champion_that_is_no_pair_is_left_for_a_draft_that_needs_no_making(
    registry: str, tmp_path: Path
) -> None:
    store = Store(registry)
    target = tiny.target(tmp_path / "target")
    line = ("--pairing", "docstrings", "--registry", registry, "--home", tmp_path / "home")
    registered(store, target, tmp_path / "1", "head")
    store.client.create_model_version("docstrings", source=str(tmp_path), run_id="0" * 32)
    store.client.set_registered_model_alias("docstrings", "champion", "2")
    code, told, _ = run("rollback", "--to", "ngram", *line)
    assert code == 1, "no pair served before it"
    assert "`paceline promote N`" in told["statement"]

    assert run("promote", "1", "--force", "it passed", *line)[0] == 0
    store.client.set_registered_model_alias("docstrings", "champion", "2")
    code, _, said = run("rollback", *line)
    assert code != 0
    assert "paceline rollback --to ngram" in said
    code, told, _ = run("rollback", "--to", "ngram", "--reason", "a slip", *line)
    assert code == 0
    assert told["statement"] == "v3 is now champion, the ngram draft; v2, which was, is no pair"
    champion = store.champion("docstrings")
    assert champion is not None
    served = store.pair("docstrings", 1)
    assert served is not None
    assert (champion.version, champion.draft_kind, champion.release) == (3, "ngram", served.release)
    assert champion.forced == "fallen back to: a slip", "or no server would follow it"
    assert store.describe("docstrings").warnings == (
        "not registered by Paceline, and passed over: v2",
    )
    assert run("rollback", "--to", "ngram", *line)[0] == 0, "asked again, it is so already"


@pytest.mark.parametrize(
    "command", [("promote", "1", "--force"), ("rollback", "--reason"), ("pin", "--reason")]
)
def test_a_reason_is_no_essay(registry: str, tmp_path: Path, command: tuple[str, ...]) -> None:
    line = ("--pairing", "docstrings", "--registry", registry, "--home", tmp_path / "home")
    code, told, _ = run(*command, "x" * 7000, *line)
    assert code == 2
    assert "got a reason of 7000 characters, wanted 1000 at most" in told["error"]
