"""How many prompts a policy needs, by theory, by an earlier report, and by what then happens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evaluation.gate import judge
from evaluation.plan import assumed_spread, plan
from evaluation.policy import Policy
from evaluation.simulation import Arm, report
from speculation.records import Phase
from tests.evaluation.reshaped import with_references
from tests.evaluation.test_gate import ARMS, GOOD, NGRAM

POLICY = Policy(prompts=64)


def test_a_rouge_margin_of_a_hundredth_needs_215_prompts_at_a_spread_of_005_and_857_at_010() -> (
    None
):
    known = plan(Policy())
    assert dict(zip(known.rouge_spreads, known.prompts_for_rouge, strict=True)) == {
        0.05: 215,
        0.10: 857,
    }
    text = " ".join(known.sentences)
    assert "215 (spread 0.05) or 857 (spread 0.10) prompts" in text
    assert "assumed: 80 tokens an answer" in text


def test_the_spread_of_an_earlier_report_is_used_and_the_report_named() -> None:
    measured = with_references(report(ARMS, seed=1, prompts=200), 0.0, spread=0.05)
    known = plan(POLICY, report=measured)
    assert measured.digest[:12] in known.source
    (seen,) = known.rouge_spreads
    assert seen == pytest.approx(0.05, abs=0.01)
    assert known.prompts_for_rouge[0] == pytest.approx(215 * (seen / 0.05) ** 2, rel=0.02)
    needs = {need.rule: need for need in known.needs}
    assert set(needs) == {
        *("acceptance_over_incumbent", "acceptance_floor", "forwards_over_ngram"),
        *("speed_over_plain", "first_token", "latency_p95"),
    }
    assert needs["acceptance_over_incumbent"].supposed == "if the two drafts are equal"
    assert known.most_needed == needs["acceptance_over_incumbent"]
    assert known.prompts_if_equal == known.most_needed.prompts


def test_a_slice_that_is_a_fifth_needs_five_times_its_prompts_in_all() -> None:
    measured = report(ARMS, seed=1, prompts=200, tasks=("rare", *["often"] * 4))
    needs = {need.rule: need for need in plan(POLICY, report=measured).needs}
    rare, often = needs["slice task rare"], needs["slice task often"]
    assert rare.prompts is not None
    assert often.prompts is not None
    assert rare.prompts >= 5 * POLICY.slice_minimum
    assert rare.prompts / rare.spread**2 == pytest.approx(4 * often.prompts / often.spread**2, 0.2)


def test_a_rule_whose_truth_is_beyond_its_limit_needs_no_end_of_prompts() -> None:
    measured = report({"candidate": Arm(0.2), "ngram": Arm(0.3)}, seed=1)
    known = plan(POLICY, report=measured)
    floor = next(need for need in known.needs if need.rule == "acceptance_floor")
    assert floor.prompts is None
    assert any("no number of prompts is enough" in line for line in known.sentences)
    assert "there was one draft" in known.source


def test_the_prompts_that_it_names_decide_nine_times_in_ten() -> None:
    first = report({"candidate": GOOD, "incumbent": GOOD, "ngram": NGRAM}, seed=7, prompts=200)
    policy = replace(POLICY, acceptance_margin=0.08)
    needed = plan(policy, report=first).prompts_if_equal
    assert needed is not None
    assert 20 < needed < 200
    arms = {"candidate": GOOD, "incumbent": GOOD, "ngram": NGRAM}
    passed = sum(
        judge(policy, report(arms, seed=500 + run, prompts=needed)).phase is Phase.PASS
        for run in range(40)
    )
    assert passed >= 31  # 36 expected; below 31 with a chance of 1 %, the spread being a guess too


def test_the_assumed_spread_is_what_such_drafts_have() -> None:
    one, other = Arm(0.5, 0.10), Arm(0.5, 0.10)
    measured = report(
        {"candidate": one, "incumbent": other, "ngram": NGRAM}, seed=3, prompts=2_000, alike=0.0
    )
    needs = {need.rule: need.spread for need in plan(POLICY, report=measured).needs}
    tokens = sum(r.completion_tokens for r in measured.of("candidate")) / 2_000
    assumed = assumed_spread(4, tokens, one.acceptance(4), 0.10)
    assert needs["acceptance_over_incumbent"] == pytest.approx(assumed, rel=0.2)


def test_a_report_that_tells_nothing_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match="tells no variance: 3 prompts were measured"):
        plan(POLICY, report=report(ARMS, seed=1, prompts=3))


def test_fewer_prompts_than_can_be_judged_are_told_of_first() -> None:
    few = plan(replace(POLICY, prompts=19))
    assert few.too_few is not None
    assert "19 prompts give no verdict" in few.too_few
    assert few.too_few.endswith("20 at least (minimum_prompts), 1 more.")
    assert few.too_few in few.sentences
    enough = plan(replace(POLICY, prompts=20))
    assert enough.too_few is None
    assert any("With 20 prompts a draft" in line for line in enough.sentences)


@pytest.mark.parametrize(
    ("policy", "equal", "rouge"),
    [
        (Policy(alpha=1e-320), "needs 218263 prompts", "needs 39107 (spread 0.05)"),
        (Policy(acceptance_margin=0.0, rouge_l_margin=0.0), "needs no end of", "needs no end of"),
        (Policy(acceptance_margin=1e-200, rouge_l_margin=1e-200), "no end of", "no end of"),
    ],
)
def test_a_policy_that_hardly_any_number_of_prompts_satisfies_is_told_so(
    policy: Policy, equal: str, rouge: str
) -> None:
    _, _, told_equal, told_rouge, *_ = plan(policy).sentences
    assert equal in told_equal
    assert rouge in told_rouge
