"""A stored report and its policy give the verdict again, to the byte; the verdict says what it
rests on."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.exits import Exit
from cli.main import app
from configuration.faults import ConfigurationError
from configuration.reading import read_policy
from evaluation.gate import judge
from evaluation.policy import Policy
from evaluation.report import Report
from evaluation.simulation import Arm, report
from evaluation.spending import Looks
from evaluation.version import code_version
from speculation.records import Phase, Verdict
from tests.evaluation.reshaped import at_once_too, with_references
from tests.evaluation.test_comparable import ALONE, elsewhere
from tests.evaluation.test_gate import ARMS


def whole() -> Report:
    """Slices, several loads, references: every family of rules has something to say."""
    measured = report(ARMS, seed=1, prompts=120, tasks=("a", "b", "c"))
    return with_references(at_once_too(measured, 8, {"candidate": 1.3}), 0.001)


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return done.exit_code, done.stdout if done.exit_code in (0, 1, 3) else done.output


def test_a_stored_report_is_judged_the_same_to_the_byte(tmp_path: Path) -> None:
    whole().write(tmp_path / "report.json")
    first, second = (run("gate", tmp_path / "report.json", "--json") for _ in range(2))
    assert first == second
    assert first[0] == Exit.YES
    here = judge(Policy(), whole())
    told = json.loads(first[1])
    assert told["phase"] == here.phase
    assert json.dumps(told["findings"]) == json.dumps(asdict(here)["findings"])
    assert told["report"] == whole().digest


def test_a_verdict_stores_its_inputs_limits_intervals_and_code_and_is_reached_again() -> None:
    policy = Policy(acceptance_floor=0.4, must_gain=(1, 8))
    verdict = judge(policy, whole())
    basis = verdict.basis
    assert basis is not None
    assert (basis.report, basis.incumbent) == (whole().digest, None)
    assert (basis.prompts, basis.alpha, basis.code_version) == (120, 0.05, code_version())
    assert len(basis.policy) == 64
    figures = [f for f in verdict.findings if f.interval is not None]
    assert len(figures) > 8
    assert all(f.interval is not None and f.interval.n > 1 for f in figures)
    assert all(f.threshold is not None for f in figures)
    stored: Any = json.loads(json.dumps(asdict(verdict)))
    again = Verdict.from_json(stored)
    assert again == verdict
    limits = {**basis.limits, "must_gain": tuple(basis.limits["must_gain"])}
    assert judge(Policy(**limits), whole()) == verdict


@pytest.mark.parametrize(
    "other",
    [Policy(alpha=0.04), Policy(must_gain=()), Policy(slice_margin=0.11)],
)
def test_another_policy_has_another_digest(other: Policy) -> None:
    ours, theirs = judge(Policy(), whole()).basis, judge(other, whole()).basis
    assert ours is not None
    assert theirs is not None
    assert ours.policy != theirs.policy
    assert ours.report == theirs.report


def test_a_verdict_that_was_stored_before_it_told_its_basis_still_reads() -> None:
    finding = {"rule": "floor", "phase": "PASS", "statement": "x", "interval": None}
    old = Verdict.from_json({"phase": "PASS", "findings": [finding]})
    assert (old.phase, old.basis, old.context_measured) == (Phase.PASS, None, None)
    assert (old.findings[0].more, old.findings[0].excused) == (None, False)


def test_a_look_at_growing_data_is_judged_at_its_own_level_on_every_replay(tmp_path: Path) -> None:
    look = replace(whole(), looks=Looks(1, (120, 480)))
    look.write(tmp_path / "report.json")
    code, told = run("gate", tmp_path / "report.json", "--json")
    assert code in (0, 1, 3)
    basis = json.loads(told)["basis"]
    assert basis["alpha"] == pytest.approx(0.05 / 16)  # a quarter of the prompts, squared
    assert basis["limits"]["alpha"] == 0.05


@pytest.mark.parametrize(
    "limit",
    [
        *("speed_over_plain = 1e-9", "speed_elsewhere = 1e-9", "forwards_over_ngram = 1e9"),
        *("p95_over_plain = 1e9", "p99_over_plain = 1e9", "first_token_over_plain = 1e9"),
        *("slice_minimum = 1000000000", "speed_over_plain = inf"),
    ],
)
def test_a_limit_so_far_off_that_it_is_none_is_refused_by_name(limit: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(f"{limit}\n")
    with pytest.raises(ValueError, match=f"{limit.split()[0]}.*wanted"):
        read_policy(file)


def test_the_gate_takes_a_policy_from_a_file_and_names_every_fault_of_it(tmp_path: Path) -> None:
    whole().write(tmp_path / "report.json")
    file = tmp_path / "policy.toml"
    file.write_text("acceptance_floor = 0.9\nmust_gain = [1, 8]\n")
    assert read_policy(file) == Policy(acceptance_floor=0.9, must_gain=(1, 8))
    code, told = run("gate", tmp_path / "report.json", "--policy", file, "--json")
    assert code == Exit.NO
    assert json.loads(told)["basis"]["limits"]["acceptance_floor"] == 0.9
    file.write_text('acceptance_flor = 0.9\nalpha = 0.6\nmust_gain = [0]\nprompts = "many"\n')
    with pytest.raises(ConfigurationError) as caught:
        read_policy(file)
    faults = {fault.key: str(fault) for fault in caught.value.faults}
    assert set(faults) == {"acceptance_flor", "alpha", "must_gain", "prompts"}
    assert "did you mean acceptance_floor?" in faults["acceptance_flor"]
    assert "wanted above 0, below 0.5" in faults["alpha"]
    code, told = run("gate", tmp_path / "report.json", "--policy", file)
    assert code == Exit.BAD_INPUT


def test_two_policies_at_once_are_refused(tmp_path: Path) -> None:
    whole().write(tmp_path / "report.json")
    (tmp_path / "p.toml").touch()
    given = ("--policy", tmp_path / "p.toml", "--pairing", "x", "--home", tmp_path)
    code, told = run("gate", tmp_path / "report.json", *given)
    assert code == Exit.BAD_INPUT


def test_the_gate_takes_the_incumbents_report_and_refuses_one_that_does_not_compare(
    tmp_path: Path,
) -> None:
    ALONE.write(tmp_path / "new.json")
    other = elsewhere()
    other.write(tmp_path / "old.json")
    given = ("gate", tmp_path / "new.json", "--incumbent")
    code, told = run(*given, tmp_path / "old.json", "--json")
    assert code == Exit.YES
    assert json.loads(told)["basis"]["incumbent"] == other.digest
    replace(other, conditions=replace(other.conditions, draft_len=7)).write(tmp_path / "k.json")
    code, told = run(*given, tmp_path / "k.json")
    assert code == Exit.BAD_INPUT


def test_the_command_says_the_verdict_for_people_and_what_to_do(tmp_path: Path) -> None:
    report({**ARMS, "candidate": Arm(0.1)}, seed=1).write(tmp_path / "report.json")
    code, told = run("gate", tmp_path / "report.json")
    assert code == Exit.NO
    lines = told.splitlines()
    assert lines[0] == "FAIL"
    assert "the draft that serves now is better" in lines[1]
    assert any(line.startswith("  Keep what serves") for line in lines)


def test_a_report_that_was_changed_is_named(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    whole().write(file)
    file.write_text(file.read_text().replace('"completion_tokens":', '"completion_tokens": '))
    assert run("gate", file)[0] == Exit.YES  # the same content, laid out otherwise
    stored = json.loads(file.read_text())
    stored["requests"][0]["completion_tokens"] += 1
    file.write_text(json.dumps(stored))
    assert run("gate", file)[0] == Exit.BAD_INPUT
    file.write_bytes(file.read_bytes()[:-40])
    assert run("gate", file)[0] == Exit.BAD_INPUT
