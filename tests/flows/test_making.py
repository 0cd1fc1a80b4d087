"""What judges a pair is nothing that its drafts learned from."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from configuration.faults import ConfigurationError
from configuration.prompts import write_prompts
from configuration.settings import Pairing, Settings
from evaluation.policy import Policy
from evaluation.report import PairFacts, Report
from evaluation.samples import question_digest
from evaluation.simulation import Arm, report
from flows import keeping, making, measuring
from flows.lineage import PROMPTS
from registry.fingerprint import fingerprint_draft
from speculation.records import Prompt
from tests.registry import tiny

ASKED = [Prompt(str(n), ({"role": "user", "content": f"fox {n}"},), "a fox") for n in range(40)]
LINE = Pairing(policy=Policy(prompts=30))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = Settings(home=tmp_path)
    write_prompts(made.path(LINE.evaluation_prompts), ASKED)
    return made


def taught(folder: Path, prompts: Sequence[Prompt]) -> str:
    """A draft that learned from all of them but the last, which chose its checkpoint."""
    draft = tiny.head(folder / "draft")
    *training, last = [question_digest(Prompt("?", prompt.messages)) for prompt in prompts]
    told = {"data": "", "draft": fingerprint_draft(draft).digest}
    (folder / PROMPTS).write_text(json.dumps({**told, "train": training, "validation": [last]}))
    return str(draft)


def measured(
    settings: Settings, draft: str, parent: str | None, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[str], dict[str, Any]]:
    """The ids of the prompts that the trial server is asked, and what measuring told."""
    asked: list[str] = []

    def trial(
        target: Path,
        arms: Mapping[str, str],
        prompts: Sequence[Prompt],
        out: Path,
        *,
        passed_over: int,
        **_: Any,
    ) -> Report:
        asked.extend(prompt.id for prompt in prompts)
        found = report({"candidate": Arm(0.6), "ngram": Arm(0.1)}, prompts=len(prompts), seed=0)
        found = replace(found, facts=PairFacts((), passed_over=passed_over))
        out.mkdir()
        found.write(out / "report.json")
        return found

    monkeypatch.setattr(measuring, "run_trial", trial)
    plan = {"target": "/t", "parent_draft": parent, "choice": "warm"}
    out = settings.home / "trial"
    return asked, making.measure_pair(settings, LINE, plan, draft, out, print)


def test_the_pairings_adapters_are_served_where_it_is_measured(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Mapping[str, Path]] = []

    def trial(*_: Any, adapters: Mapping[str, Path], **__: Any) -> Report:
        given.append(adapters)
        return report({"candidate": Arm(0.6), "ngram": Arm(0.1)}, prompts=30, seed=0)

    monkeypatch.setattr(measuring, "run_trial", trial)
    line = replace(LINE, adapters={"law": Path("lora/law")})
    plan = {"target": "/t", "parent_draft": None, "choice": "scratch"}
    making.measure_pair(settings, line, plan, "ngram", settings.home / "trial", print)
    assert given == [{"law": settings.home / "lora" / "law"}]


def test_what_either_draft_learned_from_is_passed_over_and_the_verdict_says_so(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft, parent = taught(tmp_path / "new", ASKED[:3]), taught(tmp_path / "old", ASKED[2:5])
    asked, told = measured(settings, draft, parent, monkeypatch)
    assert asked == [prompt.id for prompt in ASKED[5:35]]
    judged = making.judge_report(LINE, told)
    said = {finding["rule"]: finding["statement"] for finding in judged["verdict"]["findings"]}
    assert "5 evaluation prompts are among those a draft learned from" in said["prompts_apart"]
    assert "5 evaluation prompts" in (Path(told["folder"]) / "report.html").read_text()


def test_a_question_that_stands_in_the_file_again_is_asked_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ASKED[0].messages[0]["content"]
    again = [
        replace(ASKED[0], id=f"again {n}", messages=({"role": "user", "content": f"{first}{end}"},))
        for n, end in enumerate(("", "\n"))
    ]
    write_prompts(settings.path(LINE.evaluation_prompts), [*again, *ASKED])
    asked, told = measured(settings, "ngram", None, monkeypatch)
    assert asked == ["again 0", *(prompt.id for prompt in ASKED[1:30])]
    assert told["passed_over"] == 0, "nothing learned from them"
    assert "2 of 42 evaluation prompts ask what another asks" in making.decidable(LINE, settings)[0]


def test_both_pages_and_their_pictures_go_with_the_pair(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, told = measured(settings, "ngram", None, monkeypatch)
    making.judge_report(LINE, told)
    files = keeping.assemble("ngram", told, tmp_path / "pair")
    kept = {path.name for path in (files / "report").iterdir()}
    assert kept == {"report.json", "report.html", "report.md"} | {
        path.name for path in Path(told["folder"]).glob("*.png")
    }
    text = (files / "report" / "report.md").read_text()
    pictures = re.findall(r"!\[\w+\]\((\S+)\)", text)
    assert pictures
    assert set(pictures) <= kept


def test_a_prompt_for_an_adapter_is_named_before_anything_is_looked_at(settings: Settings) -> None:
    write_prompts(
        settings.path(LINE.evaluation_prompts), [*ASKED, replace(ASKED[0], id="law", adapter="law")]
    )
    with pytest.raises(
        ConfigurationError, match="prompt 'law': got the adapter 'law', wanted none"
    ):
        making.look(settings, LINE, "line", "a" * 64, settings.home / "work", print)


def test_where_nothing_was_learned_from_the_first_are_asked(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, told = measured(settings, "ngram", None, monkeypatch)
    assert asked == [prompt.id for prompt in ASKED[:30]]
    assert told["passed_over"] == 0


def test_too_few_prompts_that_were_not_learned_from_are_refused(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = taught(tmp_path / "new", ASKED[:21])
    with pytest.raises(ValueError, match=r"40 prompts, 21 of which .* wanted 20 at least"):
        measured(settings, draft, None, monkeypatch)


def test_prompts_that_would_all_be_learned_are_refused_before_the_target_answers_any(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr(making, "device", lambda: "cpu")

    def child(step: str, *_: Any) -> Path:
        started.append(step)
        return tmp_path

    monkeypatch.setattr(making, "in_child", child)
    write_prompts(settings.path(LINE.train_prompts), [Prompt("x", p.messages) for p in ASKED[:1]])
    making.regenerate_answers(settings, LINE, {"target": "/t"}, tmp_path / "out", print)
    assert started == ["regenerate"]
    write_prompts(settings.path(LINE.train_prompts), ASKED)
    with pytest.raises(ValueError, match="40 of which a draft learns from"):
        making.regenerate_answers(settings, LINE, {"target": "/t"}, tmp_path / "out", print)
    assert started == ["regenerate"]
