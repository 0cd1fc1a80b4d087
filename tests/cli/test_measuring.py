"""What `evaluate` says before it measures."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

import flows.trial
import registry.compatibility
from cli.main import app
from configuration.prompts import write_prompts
from evaluation.samples import question_digest
from flows.lineage import PROMPTS
from registry.fingerprint import fingerprint_draft
from speculation.records import Prompt
from tests.registry import tiny

ASKED = [Prompt(str(n), ({"role": "user", "content": f"fox {n}"},), "a fox") for n in range(5)]


@pytest.mark.parametrize("learned", [0, 2])
def test_prompts_that_a_draft_learned_from_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, learned: int
) -> None:
    def trial(*_: Any, **__: Any) -> None:
        raise ValueError("far enough")

    monkeypatch.setattr(flows.trial, "run_trial", trial)
    answer = SimpleNamespace(ok=True)
    monkeypatch.setattr(registry.compatibility, "compare", lambda target, draft: answer)
    target, draft = tiny.target(tmp_path / "target"), tiny.head(tmp_path / "made" / "draft")
    taught = [question_digest(Prompt("", each.messages)) for each in ASKED[:learned]]
    told = {"draft": fingerprint_draft(draft).digest, "data": ""}
    lists = {"train": taught[:1], "validation": taught[1:]}
    (draft.parent / PROMPTS).write_text(json.dumps({**told, **lists}))
    write_prompts(tmp_path / "asked.jsonl", ASKED)
    options = ["--draft", draft, "--prompts", tmp_path / "asked.jsonl", "--out", tmp_path / "out"]
    done = CliRunner().invoke(app, ["evaluate", str(target), *map(str, options)])
    assert "far enough" in done.output
    assert ("2 of 5 prompts are among those that a draft learned from" in done.output) == (
        learned == 2
    )
