"""`paceline bench gate`: what it prints, and that a broken rule makes it say no."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from cli.main import app
from evaluation import proof, rivals
from evaluation.policy import Policy
from evaluation.report import Report
from speculation.records import Phase

MARGIN = [truth for truth in proof.truths((0.20,)) if truth.plain]


def never_sure(policy: Policy, measured: Report) -> Phase:
    return Phase.INCONCLUSIVE


@pytest.fixture(autouse=True)
def few_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "truths", lambda: iter(MARGIN))
    monkeypatch.setattr(proof, "RIVALS", {"fixed threshold": rivals.fixed_threshold})


def bench(*options: str) -> tuple[int, str]:
    result = CliRunner().invoke(
        app, ["bench", "gate", "--runs", "40", "--workers", "1", *options], catch_exceptions=False
    )
    return result.exit_code, result.stdout


def test_a_rule_that_keeps_its_bounds_is_shown_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "SHIPPED", {"the gate": rivals.pooled_slices})  # right, without any
    code, printed = bench()
    assert code == 0
    assert "The gate keeps every bound." in printed
    assert max(map(len, printed.splitlines())) <= 100
    row = next(line for line in printed.splitlines() if line.startswith("at margin, 0.20: PASS"))
    assert row.endswith("!")  # the rival's


@pytest.mark.parametrize(
    ("rule", "why"),
    [(rivals.token_level, "wrong too often"), (never_sure, "leaves open what it could tell")],
)
def test_a_broken_rule_in_the_place_of_the_gate_is_a_no(
    rule: proof.Rule, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "SHIPPED", {"the gate": rule})
    code, printed = bench()
    assert code == 1
    assert "The proof fails:" in printed
    assert why in printed


def test_for_programs_it_is_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "SHIPPED", {"the gate": rivals.pooled_slices})
    code, printed = bench("--json")
    told = json.loads(printed)
    assert (code, told["holds"], told["faults"]) == (0, True, [])
    case = next(c for c in told["cases"] if c["truth"]["name"] == "at margin")
    assert case["bound"] == 6
    assert sum(case["verdicts"]["the gate"].values()) == case["runs"] == 40
    assert case["theory"]["PASS"] == pytest.approx(0.05)
