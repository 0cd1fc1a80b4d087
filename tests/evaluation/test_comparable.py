"""An incumbent that was measured elsewhere is a comparison only where it was measured alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from evaluation.comparable import ComparisonError
from evaluation.gate import judge
from evaluation.policy import Policy
from evaluation.simulation import Arm, report
from speculation.records import Phase
from tests.evaluation.reshaped import without
from tests.evaluation.test_gate import ARMS, finding

POLICY = Policy(prompts=64)
SIMULATED = report(ARMS, seed=1)
STARTED: dict[str, Any] = {"max_slots": 8, "max_context": 1024, "dtype": "float32"}
BOTH = replace(
    SIMULATED,
    conditions=replace(SIMULATED.conditions, **STARTED, adapters={"law": "a" * 64}),
)
ALONE = without(BOTH, "incumbent")


def elsewhere() -> Any:
    """The incumbent of BOTH in a report of its own, where it was the candidate."""
    pairs = {("candidate" if a == "incumbent" else a): p for a, p in BOTH.conditions.pairs.items()}
    pairs["candidate"] = BOTH.conditions.pairs["incumbent"]
    requests = tuple(
        replace(r, arm="candidate") if r.arm == "incumbent" else r
        for r in BOTH.requests
        if r.arm != "candidate"
    )
    blocks = tuple(
        replace(b, arm="candidate") if b.arm == "incumbent" else b
        for b in BOTH.blocks
        if b.arm != "candidate"
    )
    return replace(
        BOTH,
        conditions=replace(BOTH.conditions, pairs=pairs),
        requests=requests,
        blocks=blocks,
        errors=dict.fromkeys(pairs, 0),
    )


def test_an_incumbent_of_another_report_is_compared_as_if_it_were_an_arm_of_this_one() -> None:
    other = elsewhere()
    verdict = judge(POLICY, ALONE, other)
    rule = "acceptance_over_incumbent"
    assert finding(verdict, rule).interval == finding(judge(POLICY, BOTH), rule).interval
    assert verdict.basis is not None
    assert (verdict.basis.report, verdict.basis.incumbent) == (ALONE.digest, other.digest)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("release", "f" * 64, "release rrrrrrrrrrrr and ffffffffffff"),
        ("prompts_digest", "e" * 64, "prompts [0-9a-f]{12} and eeeeeeeeeeee"),
        ("draft_len", 5, "draft length K 4 and 5"),
        ("temperatures", (0.7,), r"temperatures \(0.0,\) and \(0.7,\)"),
        ("max_tokens", 64, "longest answer 161 and 64"),
        ("seed", 1, "seed 0 and 1"),
        ("engine", "vllm", "engine synthetic and vllm"),
        ("max_slots", 4, "requests decoded at once 8 and 4"),
        ("max_slots", None, "requests decoded at once 8 and unknown"),
        ("max_context", 4096, "longest context 1024 and 4096"),
        ("dtype", "bfloat16", "precision float32 and bfloat16"),
        ("adapters", {"law": "b" * 64}, "adapter law a{12} and b{12}"),
        ("adapters", {}, "adapter law a{12} and none"),
        ("adapters", None, "whether it is known which adapters"),
    ],
)
def test_reports_that_were_measured_otherwise_are_refused_with_what_differs(
    field: str, value: object, said: str
) -> None:
    other = elsewhere()
    changed: dict[str, Any] = {field: value}
    other = replace(other, conditions=replace(other.conditions, **changed))
    with pytest.raises(ComparisonError, match=said):
        judge(POLICY, ALONE, other)


def test_every_difference_is_named_at_once() -> None:
    other = elsewhere()
    other = replace(other, conditions=replace(other.conditions, draft_len=2, seed=9))
    with pytest.raises(ComparisonError, match="draft length K 4 and 2; seed 0 and 9"):
        judge(POLICY, ALONE, other)


def test_a_report_that_holds_its_incumbent_takes_no_second_one() -> None:
    with pytest.raises(ComparisonError, match="wanted one of the two"):
        judge(POLICY, BOTH, elsewhere())


def test_what_is_wrong_with_the_incumbents_report_is_wrong_with_the_comparison() -> None:
    ended = replace(elsewhere(), incomplete="it hangs")
    verdict = judge(POLICY, ALONE, ended)
    assert verdict.phase is Phase.INCONCLUSIVE
    assert "it hangs" in verdict.sentence
    other = elsewhere()
    learned = replace(other, facts=replace(other.facts, learned=("p1",)))
    assert finding(judge(POLICY, ALONE, learned), "prompts_apart").phase is Phase.INCONCLUSIVE


def test_no_incumbent_is_said() -> None:
    verdict = judge(POLICY, report({"candidate": Arm(0.6), "ngram": Arm(0.1)}, seed=2))
    assert verdict.phase is Phase.PASS
    assert "no draft serves this release yet" in verdict.findings[3].statement
