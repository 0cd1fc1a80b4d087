"""`evaluate --pairing`: what is measured is what is registered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import flows.trial
from cli.exits import Exit
from cli.main import app
from configuration.prompts import write_prompts
from configuration.serving import Serving
from configuration.settings import Measuring, Pairing
from configuration.writing import write_default
from evaluation.policy import Policy
from registry.promotion import promote
from registry.store import Store
from speculation.records import Prompt
from tests.cli.test_commands import migrated as migrated
from tests.cli.test_commands import registry as registry
from tests.registry import tiny
from tests.registry.conftest import registered

MANY = [Prompt(str(n), ({"role": "user", "content": f"fox {n}"},), "a fox") for n in range(24)]


def test_a_pairing_is_measured_as_the_registry_and_its_table_have_it(
    registry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Path, dict[str, str], int, Pairing, Serving]] = []

    def trial(target: Path, arms: dict[str, str], prompts: list[Prompt], *_: Any, **k: Any) -> None:
        asked.append((target, arms, len(prompts), k["line"], k["serving"]))
        raise ValueError("far enough")

    monkeypatch.setattr(flows.trial, "run_trial", trial)
    store, home = Store(registry), tmp_path / "home"
    line = Pairing(
        draft_len=6, measurement=Measuring(max_tokens=17), policy=Policy(prompts=22), draft="ngram"
    )
    write_default(home / "paceline.toml", {"docstrings": line})
    write_prompts(home / line.evaluation_prompts, MANY)
    target = tiny.target(tmp_path / "target")
    registered(store, target, tmp_path / "1", "ngram")
    promote(store, "docstrings", 1, expect=None)
    where = ["--home", home, "--registry", registry, "--out", tmp_path / "out"]

    def run(*more: object) -> Result:
        given = [str(each) for each in ("evaluate", "--pairing", "docstrings", *where, *more)]
        return CliRunner().invoke(app, given)

    assert "measuring docstrings v1, no other pair beside it" in run().output
    of, arms, prompts, used, serving = asked[0]
    assert (of, arms, prompts) == (
        target,
        {"candidate": "ngram", "ngram": "ngram", "none": "none"},
        22,
    )
    assert (used.draft_len, used.measurement.max_tokens) == (6, 17)
    assert serving == Serving()
    registered(store, tiny.target(tmp_path / "next", seed=1), tmp_path / "2", "ngram")
    assert "docstrings v2 beside its champion v1" in run().output
    assert asked[1][0] == tmp_path / "next"
    assert asked[1][1]["incumbent"] == "ngram"
    for more in (("--draft-len", 3), ("--draft", "ngram"), ("--policy", home / "paceline.toml")):
        refused = run(*more)
        assert refused.exit_code == Exit.BAD_INPUT
        assert more[0] in refused.output
    assert len(asked) == 2
    assert run("--plan").exit_code == Exit.YES


def test_without_a_pairing_the_draft_and_its_prompts_have_to_be_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["evaluate", "--out", str(tmp_path), str(tmp_path)])
    assert done.exit_code == Exit.BAD_INPUT
    assert "--draft" in done.output
