"""What `evaluate` says before and after it measures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import flows.looking
import flows.trial
import registry.compatibility
from cli import until_sure as until_sure_options
from cli.exits import Exit
from cli.gating import findings
from cli.main import app
from configuration.prompts import write_prompts
from configuration.serving import Serving
from configuration.settings import Pairing
from evaluation.gate import judge
from evaluation.looks import strata_of
from evaluation.policy import Policy
from evaluation.report import PairFacts, Report
from evaluation.samples import question_digest
from evaluation.sequential import MOST_LOOKS, Outcome, plan_looks, until_sure
from evaluation.simulation import Arm, report, upto
from flows.lineage import PROMPTS
from registry.fingerprint import fingerprint_draft
from speculation.records import Finding, Phase, Prompt, Verdict
from tests.registry import tiny

OPTIONS = ["--tokenizer", "code", "--temperature", "0", "--temperature", "0.7"]
ASKED = [Prompt(str(n), ({"role": "user", "content": f"fox {n}"},), "a fox") for n in range(5)]
MANY = [Prompt(str(n), ({"role": "user", "content": f"fox {n}"},), "a fox") for n in range(24)]


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


def test_a_question_that_is_asked_again_is_left_out_and_a_draft_without_record_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def trial(target: Path, arms: Any, prompts: list[Prompt], *_: Any, **__: Any) -> None:
        asked.extend(prompt.id for prompt in prompts)
        raise ValueError("far enough")

    monkeypatch.setattr(flows.trial, "run_trial", trial)
    monkeypatch.setattr(registry.compatibility, "compare", lambda *_: SimpleNamespace(ok=True))
    content = f"{ASKED[1].messages[0]['content']} \n"
    again = replace(ASKED[1], id="again", messages=({"role": "user", "content": content},))
    elsewhere = replace(ASKED[1], id="law", adapter="law")
    write_prompts(tmp_path / "asked.jsonl", [*ASKED, again, elsewhere])
    target, draft = tiny.target(tmp_path / "target"), tiny.head(tmp_path / "made" / "draft")
    options = ["--draft", draft, "--prompts", tmp_path / "asked.jsonl", "--out", tmp_path / "out"]
    done = CliRunner().invoke(app, ["evaluate", str(target), *map(str, options)])
    assert asked == [*(prompt.id for prompt in ASKED), "law"], "of another adapter it is another"
    assert "1 of 7 prompts ask what one before them asks" in done.output
    assert "what the candidate was trained on is not on record" in done.output


def test_names_out_of_a_stored_report_steer_no_terminal() -> None:
    forged = Finding("slice task a", Phase.PASS, "dead\n  PASS         parity: \x1b[32mall\u202e")
    (line,) = findings(Verdict.of([forged]))
    assert line == r"  PASS         slice task a: dead\n  PASS         parity: \x1b[32mall\u202e"


def test_a_load_that_the_policy_wants_a_gain_at_has_to_be_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_prompts(tmp_path / "asked.jsonl", ASKED)
    (tmp_path / "policy.toml").write_text("must_gain = [1, 8]\n")
    given = ["--draft", "ngram", "--prompts", tmp_path / "asked.jsonl", "--out", tmp_path / "out"]
    policy = ["--policy", tmp_path / "policy.toml", "--speed-concurrency", "1"]
    target = tiny.target(tmp_path / "target")
    for more in (policy, ["--speed-concurrency", "8", "--until-sure"]):
        done = CliRunner().invoke(app, ["evaluate", *map(str, [target, *given, *more]), "--json"])
        assert done.exit_code == Exit.BAD_INPUT
        wanted = "8" if more is policy else "1"
        assert f"the policy wants a gain at {wanted} requests at once" in done.output
    assert not (tmp_path / "out").exists()
    done, line = evaluated(tmp_path / "8", monkeypatch, None, "--speed-concurrency", "8")
    assert done.exit_code == Exit.YES, "figures alone may be of any load"
    assert line.measurement.speed_concurrencies == (8,)


def test_the_server_of_a_measurement_is_the_one_that_will_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[Serving] = []

    def trial(*_: Any, serving: Serving, **__: Any) -> None:
        served.append(serving)
        raise ValueError("far enough")

    monkeypatch.setattr(flows.trial, "run_trial", trial)
    monkeypatch.setattr(flows.looking, "run_until_sure", trial)
    monkeypatch.setattr(registry.compatibility, "compare", lambda *_: SimpleNamespace(ok=True))
    write_prompts(tmp_path / "asked.jsonl", MANY)
    given = ["--draft", "ngram", "--prompts", tmp_path / "asked.jsonl", "--out", tmp_path / "out"]
    target = tiny.target(tmp_path / "target")
    for more in ((), ("--until-sure",)):
        options = ["--max-slots", "2", "--max-context", "4096", *more]
        CliRunner().invoke(app, ["evaluate", *map(str, [target, *given, *options])])
    assert [(each.max_slots, each.max_context) for each in served] == [(2, 4096)] * 2


def test_too_few_prompts_for_a_verdict_are_told_of_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[str] = []

    def trial(*_: Any, **__: Any) -> None:
        began.append("a server")
        raise ValueError("far enough")

    monkeypatch.setattr(flows.trial, "run_trial", trial)
    monkeypatch.setattr(flows.looking, "run_until_sure", trial)
    monkeypatch.setattr(registry.compatibility, "compare", lambda *_: SimpleNamespace(ok=True))
    write_prompts(tmp_path / "asked.jsonl", MANY)
    given = ["--draft", "ngram", "--prompts", tmp_path / "asked.jsonl", "--out", tmp_path / "out"]
    target = tiny.target(tmp_path / "target")

    def run(*more: str) -> Result:
        return CliRunner().invoke(app, ["evaluate", *map(str, [target, *given, *more])])

    few = "5 prompts give no verdict but INCONCLUSIVE, whatever is measured: the policy wants 20"
    planned = run("--count", "5", "--plan")
    assert (planned.exit_code, began) == (Exit.YES, [])
    assert few in planned.stdout
    sure = run("--count", "5", "--until-sure")
    assert (sure.exit_code, began) == (Exit.BAD_INPUT, [])
    assert few in " ".join(sure.output.replace("│", " ").split())
    figures = run("--count", "5")
    assert began == ["a server"], "figures alone may be of any number"
    assert few in figures.stderr
    assert "no verdict" not in run("--plan").stdout


def evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, incomplete: str | None, *more: str
) -> tuple[Result, Pairing]:
    """`evaluate` of a measurement that was made elsewhere, and how it asked for it."""
    asked: list[Pairing] = []

    def trial(*given: Any, line: Pairing, **_: Any) -> Report:
        asked.append(line)
        drawn = report({"candidate": Arm(0.6), "ngram": Arm(0.1)}, seed=1, prompts=40)
        found = replace(drawn, incomplete=incomplete, facts=PairFacts(incompatible=()))
        given[3].mkdir(exist_ok=True)
        found.write(given[3] / "report.json")
        return found

    monkeypatch.setattr(flows.trial, "run_trial", trial)
    monkeypatch.setattr(registry.compatibility, "compare", lambda *_: SimpleNamespace(ok=True))
    target = tiny.target(tmp_path / "target")
    write_prompts(tmp_path / "asked.jsonl", ASKED)
    options = ["--draft", "ngram", "--prompts", tmp_path / "asked.jsonl", "--out", tmp_path / "out"]
    done = CliRunner().invoke(app, ["evaluate", str(target), *map(str, options), *more])
    return done, asked[0]


def test_a_measurement_that_was_cut_short_is_kept_told_and_inconclusive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, _ = evaluated(tmp_path, monkeypatch, "the server hangs")
    assert done.exit_code == Exit.INCONCLUSIVE
    assert "measuring ended early: the server hangs; the same command goes on" in done.stdout
    assert Report.read(tmp_path / "out" / "report.json").incomplete == "the server hangs"
    assert (tmp_path / "out" / "report.html").is_file()


def test_programs_are_told_every_figure_with_its_interval_and_how_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = (*OPTIONS, "--speed-concurrency", "1", "--speed-concurrency", "8", "--json")
    done, line = evaluated(tmp_path, monkeypatch, None, *more)
    assert done.exit_code == Exit.YES
    assert line.measurement.temperatures == (0.0, 0.7)
    assert line.measurement.speed_concurrencies == (1, 8)
    assert line.measurement.tokenizer == "code"
    told = json.loads(done.stdout)
    assert told["incomplete"] is None
    candidate = told["arms"][0]
    for name in ("acceptance", "acceptance_rate", "acceptance_length", "forwards_per_request"):
        assert candidate[name]["low"] <= candidate[name]["estimate"] <= candidate[name]["high"]
    assert len(candidate["hazards"]) == 4
    assert 0 < candidate["correlation"] < 0.3
    (speed,) = (row for row in told["speeds"] if row["arm"] == "candidate")
    assert speed["speedup_low"] < speed["speedup"] < speed["speedup_high"]
    assert speed["predicted_decode_speedup"] > 0


def test_people_are_told_both_tables_and_prediction_beside_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, _ = evaluated(tmp_path, monkeypatch, None)
    for words in ("tokens a round", "correlation", "first token s", "p95 s", "by position"):
        assert words in done.stdout
    assert "decoding should be" in done.stdout
    assert "of whole requests, and it was" in done.stdout
    assert "p99" not in done.stdout  # of so few requests


@pytest.mark.parametrize(
    ("worse", "code"), [(False, Exit.YES), (True, Exit.NO)], ids=["PASS", "FAIL"]
)
def test_until_sure_ends_with_the_verdict_and_tells_every_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worse: bool, code: Exit
) -> None:
    good, bad = Arm(0.6), Arm(0.3)
    arms = {"candidate": bad if worse else good, "incumbent": good if worse else bad}
    whole = report({**arms, "ngram": Arm(0.1)}, seed=1, prompts=120)

    def looking(*given: Any, policy: Policy, looks: int, seen: Any, **_: Any) -> Outcome:
        found = until_sure(
            lambda look: upto(whole, look.planned[look.number - 1]),
            lambda measured: judge(policy, measured),
            plan_looks(120, minimum=policy.minimum_prompts, looks=looks),
            strata=strata_of(whole.prompts, {}),
            seen=seen,
        )
        given[3].mkdir(exist_ok=True)
        found.report.write(given[3] / "report.json")
        return found

    monkeypatch.setattr(flows.looking, "run_until_sure", looking)
    monkeypatch.setattr(registry.compatibility, "compare", lambda *_: SimpleNamespace(ok=True))
    target = tiny.target(tmp_path / "target")
    write_prompts(tmp_path / "asked.jsonl", MANY)
    options = ["--draft", "ngram", "--prompts", tmp_path / "asked.jsonl", "--out", tmp_path / "out"]
    more = ["--until-sure", "--looks", "3", "--json"]
    done = CliRunner().invoke(app, ["evaluate", str(target), *map(str, options), *more])
    assert done.exit_code == code
    told = json.loads(done.stdout)
    assert told["looks"]["planned"] == [40, 80, 120]
    taken = told["looks"]["number"]
    assert taken < 3
    assert f"look {taken} of at most 3, after {40 * taken} of 120 prompts: {told['phase']}" in (
        done.stderr
    )
    again = CliRunner().invoke(app, ["gate", str(tmp_path / "out" / "report.json"), "--json"])
    assert again.exit_code == code


def test_more_looks_than_can_be_told_apart_are_refused(tmp_path: Path) -> None:
    assert until_sure_options.MOST_LOOKS == MOST_LOOKS
    write_prompts(tmp_path / "asked.jsonl", ASKED)
    options = ["--draft", "ngram", "--prompts", tmp_path / "asked.jsonl", "--out", tmp_path / "out"]
    target = tiny.target(tmp_path / "target")
    done = CliRunner().invoke(app, ["evaluate", str(target), *map(str, options), "--looks", "9"])
    assert done.exit_code == 2
    assert "less than or equal to 8" in " ".join(done.output.split())
