"""The proof of the gate in short, and the proof of the proof: what is broken, it has to catch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cli.proving import conclusion, false_verdicts, left_open
from evaluation.faulty import FAULTY
from evaluation.gate import judge
from evaluation.policy import Policy
from evaluation.proof import (
    PROMPTS,
    RIVALS,
    SHIPPED,
    Proof,
    Truth,
    drawn,
    prove,
    sequential_gate,
    truths,
)
from evaluation.report import Report
from evaluation.simulation import Arm, report, upto
from speculation.records import Phase

SHORT = [
    truth
    for truth in truths((0.10,))
    if not truth.plain or truth.wrong is not None or truth.difference == 0.10
]
APART = [truth for truth in truths((0.20,)) if truth.plain or truth.dead]


@pytest.fixture(scope="module")
def short() -> Proof:
    return prove(runs=40, power_runs=10, faulty_runs=1, cases=SHORT)


def test_the_gate_keeps_its_bounds_and_decides_what_can_be_told(short: Proof) -> None:
    assert short.faults == []


@pytest.mark.parametrize("rival", RIVALS)
def test_rules_that_others_use_are_caught(short: Proof, rival: str) -> None:
    assert short.caught(rival)


def test_nothing_that_is_no_figure_ever_passes(short: Proof) -> None:
    faulty = [each for each in short.tallies if each.truth.never]
    assert len(faulty) == 3 + len(FAULTY)  # and what is dead on a slice, small or in order
    for each in faulty:
        for rule in SHIPPED:
            assert each.verdicts[rule][Phase.PASS] == 0, each.truth


def test_a_lie_that_nothing_contradicts_is_known_to_pass_and_said(short: Proof) -> None:
    """Should a rule ever see it, it belongs among what never passes."""
    (each,) = short.open
    assert {rule: each.wrong(rule) for rule in SHIPPED} == dict.fromkeys(SHIPPED, each.runs)
    said = left_open(short)
    assert conclusion(short)[-len(said) :] == said
    assert "worse by 0.10, of which the server says" in " ".join(said)
    assert f"was kept, passed {each.runs} of {each.runs}." in " ".join(said)
    row = next(line for line in false_verdicts(short) if line.startswith("lies: keeping lengths"))
    assert row.split()[4] == "open"
    honest = replace(each.truth, faulty=None)
    assert judge(short.policy, drawn(honest, 0)).phase is Phase.FAIL


@pytest.mark.slow
def test_the_gate_keeps_its_bounds_over_200_runs_at_every_correlation() -> None:
    assert prove(workers=2).faults == []


def never_sure(policy: Policy, measured: Report) -> Phase:
    return Phase.INCONCLUSIVE


@pytest.fixture(scope="module")
def broken() -> Proof:
    """Every rival in the place of the gate, and a rule that never decides, in either place."""
    return prove(
        runs=60,
        power_runs=20,
        faulty_runs=5,
        cases=APART,
        shipped={**RIVALS, "never sure": never_sure},
        others={"never wrong": never_sure},
    )


@pytest.mark.parametrize("rival", RIVALS)
def test_a_broken_rule_in_the_place_of_the_gate_fails_the_proof(broken: Proof, rival: str) -> None:
    assert any(f"{rival!r} is wrong too often" in fault for fault in broken.faults)


def test_a_rule_that_never_decides_fails_the_proof_though_it_is_never_wrong(broken: Proof) -> None:
    faults = [fault for fault in broken.faults if "'never sure'" in fault]
    assert faults
    assert all("leaves open what it could tell" in fault for fault in faults)


def test_a_rival_that_breaks_nothing_fails_the_proof(broken: Proof) -> None:
    assert any("'never wrong' breaks nothing" in fault for fault in broken.faults)


def test_the_same_proof_has_the_same_figures_however_it_is_shared_out() -> None:
    def told(workers: int) -> list[tuple[Truth, dict[str, object], list[float]]]:
        found = prove(
            runs=25, power_runs=5, cases=APART[2:4], shipped=RIVALS, others={}, workers=workers
        )
        return [(t.truth, dict(t.verdicts), sorted(t.estimates)) for t in found.tallies]

    assert told(1) == told(2)


def test_a_proof_may_have_no_rivals() -> None:
    found = prove(runs=1, cases=APART[:1], shipped={"never sure": never_sure}, others={})
    assert found.rivals == ()


def test_looks_do_not_pass_what_is_dead_on_the_task_at_the_end_of_the_file() -> None:
    truth = next(each for each in truths() if each.in_order)
    for seed in range(3):
        assert sequential_gate(Policy(prompts=PROMPTS), drawn(truth, seed)) is Phase.FAIL


def test_what_had_been_measured_earlier_is_a_report_of_its_own() -> None:
    whole = report({"candidate": Arm(0.6), "ngram": Arm(0.2)}, seed=1, prompts=64)
    part = upto(whole, 21)
    assert [prompt.id for prompt in part.prompts] == [f"p{n}" for n in range(21)]
    assert {r.prompt for r in part.requests} <= {prompt.id for prompt in part.prompts}
    timed = [r for r in part.requests if r.run == "speed"]
    assert len(timed) == 3 * 10  # whole blocks of two alone
    assert {(b.arm, b.block) for b in part.blocks} == {(r.arm, r.block) for r in timed}
    assert upto(whole, 64).requests == whole.requests


def test_theory_at_the_margin_is_alpha_whatever_the_spread(broken: Proof) -> None:
    truth = Truth("at margin", -broken.policy.acceptance_margin, correlation=0.20)
    assert broken.theory(truth, Phase.PASS) == pytest.approx(0.05)
    assert broken.theory(truth, Phase.FAIL) == pytest.approx(0.05)
