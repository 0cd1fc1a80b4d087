"""The founding case end to end at toy size: the real server, the real measurement, a toy model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli import case
from cli.exits import Exit
from cli.main import app
from evaluation.founding import before_after
from evaluation.report import Report
from evaluation.simulation import Arm, report
from tests.toys import toy_draft_folder, toy_target_folder
from training import summaries


def test_people_read_sentences_first_and_then_what_they_rest_on() -> None:
    whole = report({"candidate": Arm(0.6), "ngram": Arm(0.2)}, seed=1, prompts=40)
    told = [before_after(whole, arm) for arm in ("candidate", "ngram")]
    printed = case.lines(told, 40)
    assert printed[0] == "40 documents summarised one at a time, without a draft and with each:"
    assert printed[1].strip() == told[0].sentence
    assert printed[3].split()[:2] == ["requests", "s"]
    assert printed[5].split()[0] == "ngram"


def test_packages_that_hold_nothing_to_summarise_or_are_not_installed_are_refused(
    tmp_path: Path,
) -> None:
    target = toy_target_folder(tmp_path / "target", seed=3)
    given = ["bench", "case", "--target", str(target), "--out", str(tmp_path / "out")]
    for more, said in ((["no_such"], "'no_such', wanted 'stdlib'"), (["iniconfig"], "wanted 4")):
        done = CliRunner().invoke(app, [*given, "--package", *more])
        assert done.exit_code == Exit.BAD_INPUT
        assert said in " ".join(done.output.replace("│", " ").split())
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_case_is_measured_through_the_real_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summaries, "LONG", (20, 60))  # the toy reads 1,024 letters
    target = toy_target_folder(tmp_path / "target", seed=3)
    head = toy_draft_folder(target, tmp_path / "head", seed=3)
    options = ["--target", target, "--draft", head, "--out", tmp_path / "out", "--count", 8]
    done = CliRunner().invoke(
        app, ["bench", "case", *map(str, options), "--max-tokens", "12", "--json"]
    )
    assert done.exit_code == Exit.YES, done.output
    told = json.loads(done.stdout)
    measured = Report.read(tmp_path / "out" / "report.json")
    assert told["digest"] == measured.digest
    assert [arm["arm"] for arm in told["arms"]] == ["candidate", "ngram"]
    for arm in told["arms"]:
        assert arm["timed"] == arm["compared"] == 8
        assert arm["times"]["low"] < arm["times"]["estimate"] < arm["times"]["high"]
        assert arm["seconds"] > 0
        assert arm["same_text"] > 0.8  # float32 and greedy: drafts change nothing but at ties
    assert all(prompt.task == "summary" for prompt in measured.prompts)
