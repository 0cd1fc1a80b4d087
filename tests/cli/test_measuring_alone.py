"""Two commands that measure into one folder: the second says so and starts nothing."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

import flows.looking
import flows.trial
import registry.compatibility
from cli.exits import Exit
from cli.main import app
from cli.measuring_alone import measuring_alone
from configuration.prompts import write_prompts
from speculation.records import Prompt
from tests.registry import tiny

ASKED = [Prompt(str(n), ({"role": "user", "content": f"fox {n}"},)) for n in range(24)]


@pytest.mark.parametrize("more", [[], ["--until-sure"]])
def test_a_second_evaluate_into_one_folder_is_refused_before_a_server_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str]
) -> None:
    started: list[bool] = []

    def trial(*_: Any, **__: Any) -> None:
        started.append(True)
        raise ValueError("far enough")

    monkeypatch.setattr(flows.trial, "run_trial", trial)
    monkeypatch.setattr(flows.looking, "run_until_sure", trial)
    monkeypatch.setattr(registry.compatibility, "compare", lambda *_: SimpleNamespace(ok=True))
    target, out = tiny.target(tmp_path / "target"), tmp_path / "out"
    write_prompts(tmp_path / "asked.jsonl", ASKED)
    given = [target, "--draft", "ngram", "--prompts", tmp_path / "asked.jsonl", "--out", out]
    command = ["evaluate", *map(str, given), *more, "--json"]
    with measuring_alone(out):
        done = CliRunner().invoke(app, command)
    assert done.exit_code == Exit.BAD_INPUT, done.output
    assert started == []
    told = json.loads(done.stdout.splitlines()[-1])["error"]
    assert told == (
        f"another evaluate measures into {out}: wait until it ends, or name another --out"
    )
    done = CliRunner().invoke(app, command)  # and afterwards the folder is free
    assert "far enough" in done.output
    assert started == [True]
