"""The server that measures a pair is the one that the user configured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from configuration.prompts import write_prompts
from configuration.reading import read_settings
from configuration.settings import Pairing, Serving, Settings
from flows.making import measure_pair
from speculation.records import Prompt


class Started(Exception):
    """Instead of a server."""


def test_a_trial_serves_with_the_configured_slots_and_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    environ: dict[str, str] = {}

    def start(argv: Sequence[str], **rest: Any) -> None:
        asked.extend(argv)
        environ.update(rest["environ"])
        raise Started

    monkeypatch.setenv("PACELINE_KEYS_FILE", "of/the/user")

    monkeypatch.setattr("evaluation.endpoints.started", start)
    line = Pairing(draft_len=3, evaluation_prompts=Path("prompts.jsonl"))
    settings = Settings(home=tmp_path, serving=Serving(max_slots=3, max_context=512))
    write_prompts(tmp_path / "prompts.jsonl", [Prompt("a", ({"role": "user", "content": "a"},))])
    plan = {"target": str(tmp_path), "parent_draft": None, "choice": "fresh"}
    with pytest.raises(Started):
        measure_pair(settings, line, plan, "ngram", tmp_path / "trial", lambda *_: None)
    given = dict(zip(asked, asked[1:], strict=False))
    assert (given["--max-slots"], given["--max-context"], given["--draft-len"]) == ("3", "512", "3")
    trial = read_settings(tmp_path, environ=environ)  # keys that nobody else on this host knows
    assert [len(key) for key in (trial.keys["trial"], *trial.admin_keys)] == [48, 48]
