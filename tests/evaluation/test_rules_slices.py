"""Each slice by itself, small ones together, and when one may be called worse."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evaluation.gate import judge
from evaluation.parity import Parity
from evaluation.policy import Policy
from evaluation.report import Report
from evaluation.rules_slices import sliced
from evaluation.simulation import Arm, nothing_accepted, report
from evaluation.spending import Looks
from evaluation.telling import next_steps, sentence
from speculation.records import Phase
from tests.evaluation.reshaped import changed, with_lengths, with_prompts
from tests.evaluation.test_gate import ARMS, GOOD, NGRAM, finding

POLICY = Policy(prompts=120)


def dead_on(measured: Report, prompts: set[str]) -> Report:
    return changed(
        measured,
        "candidate",
        lambda r: replace(r, counts=nothing_accepted(r.counts, 4)) if r.prompt in prompts else r,
    )


KINDS = {  # a fifth of 120 prompts is one value of each kind
    "task rare": lambda m: with_prompts(
        m, lambda n, p: replace(p, task="rare") if n % 5 == 0 else p
    ),
    "language zh": lambda m: with_prompts(
        m, lambda n, p: replace(p, language="zh") if n % 5 == 0 else p
    ),
    "adapter law": lambda m: with_prompts(
        m, lambda n, p: replace(p, adapter="law") if n % 5 == 0 else p
    ),
    "context up to 1024": lambda m: with_lengths(m, lambda n: 800 if n % 5 == 0 else 200),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_draft_dead_on_a_fifth_fails_there_though_it_is_better_on_average(name: str) -> None:
    measured = KINDS[name](report(ARMS, seed=1, prompts=120))
    dead = {prompt.id for prompt in measured.prompts[::5]}
    verdict = judge(POLICY, dead_on(measured, dead))
    assert finding(verdict, "acceptance_over_incumbent").phase is Phase.PASS
    found = finding(verdict, f"slice {name}")
    assert found.phase is Phase.FAIL
    assert "this slice is worse" in found.statement
    assert verdict.phase is Phase.FAIL
    assert f"not good enough on {name}" in sentence(verdict)
    assert any(f"Train on more of {name}" in step for step in next_steps(verdict))


def test_a_draft_dead_at_one_temperature_fails_there() -> None:
    cold = report(ARMS, seed=1, prompts=120)
    warm = [replace(r, temperature=1.0) for r in cold.requests if r.run == "acceptance"]
    again = [replace(r, run="again") for r in warm if r.arm == "none"]
    dead = [
        replace(r, counts=nothing_accepted(r.counts, 4)) if r.arm == "candidate" else r
        for r in warm
    ]
    both = replace(
        cold,
        conditions=replace(cold.conditions, temperatures=(0.0, 1.0)),
        requests=(*cold.requests, *dead, *again),
    )
    verdict = judge(POLICY, both)
    assert finding(verdict, "slice temperature 1").phase is Phase.FAIL
    assert finding(verdict, "slice temperature 0").phase is Phase.PASS


def test_without_an_incumbent_a_slice_has_a_floor() -> None:
    arms = {"candidate": GOOD, "ngram": NGRAM}
    measured = KINDS["task rare"](report(arms, seed=1, prompts=120))
    dead = {prompt.id for prompt in measured.prompts[::5]}
    found = finding(judge(POLICY, dead_on(measured, dead)), "slice task rare")
    assert found.phase is Phase.FAIL
    assert found.threshold == pytest.approx(0.2)


def test_slices_too_small_to_judge_are_named() -> None:
    measured = report(ARMS, seed=1, tasks=("a", *["b"] * 7))
    found = finding(judge(POLICY, measured), "slices_not_judged")
    assert found.phase is Phase.PASS
    assert "task a (8)" in found.statement
    assert "other" not in found.statement


def test_small_slices_are_judged_together_where_that_is_enough() -> None:
    small = [f"t{n % 6}" for n in range(60)]
    measured = report(ARMS, seed=1, prompts=120, tasks=(*small, *["big"] * 60))
    found = sliced(measured, POLICY)
    assert set(found.judged) == {"task big", "other"}
    assert found.small == {f"task t{n}": 10 for n in range(6)}
    others = {p.id for p in measured.prompts if p.task != "big"}
    verdict = judge(POLICY, dead_on(measured, others))
    assert finding(verdict, "slice other").phase is Phase.FAIL
    assert "judged together as `other`" in finding(verdict, "slices_not_judged").statement


def test_what_one_slice_shows_by_chance_among_many_is_not_called_worse() -> None:
    """The same figures fail as one of two slices, and stay open as one of twenty."""
    few, many = (
        report({**ARMS, "candidate": GOOD}, seed=4, prompts=400, tasks=tasks)
        for tasks in (("odd", *["rest"] * 19), ("odd", *[f"t{n}" for n in range(19)]))
    )
    odd = {prompt.id for prompt in few.prompts if prompt.task == "odd"}
    worse = Arm(0.20)  # against 0.35, on 20 prompts: beyond the margin by two standard errors
    drawn = report({**ARMS, "candidate": worse}, seed=11, prompts=400)
    # Drawn apart, their answers have lengths of their own: other texts, as rounding leaves some.
    parted = Parity(False, 9, 0.1, 0.98)
    theirs = {r.prompt: replace(r, parity=parted) for r in drawn.of("candidate")}
    policy = replace(POLICY, slice_margin=0.02)

    def put(measured: Report) -> Report:
        return changed(measured, "candidate", lambda r: theirs[r.prompt] if r.prompt in odd else r)

    first, second = (
        finding(judge(policy, put(measured)), "slice task odd") for measured in (few, many)
    )
    assert first.interval == second.interval
    assert first.interval is not None
    assert first.phase is Phase.FAIL
    assert second.phase is Phase.INCONCLUSIVE
    assert "among 20 slices one may by chance" in second.statement


def test_at_an_early_look_a_slice_that_a_later_one_will_judge_is_not_waved_through() -> None:
    measured = report(ARMS, seed=1, prompts=40, tasks=("a", "b", "c", "d"))
    early, late = (
        replace(measured, looks=Looks(n, (40, 160)[:planned])) for n, planned in ((1, 2), (1, 1))
    )
    assert judge(POLICY, late).phase is Phase.PASS
    verdict = judge(POLICY, early)
    found = finding(verdict, "slice task a")
    assert (found.phase, verdict.phase) == (Phase.INCONCLUSIVE, Phase.INCONCLUSIVE)
    assert found.more == 10
    assert "later look" in found.statement
