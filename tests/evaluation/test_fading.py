"""An arm whose gain fades midway has no one speed; warming up and K that adapts are no fading."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from evaluation.fading import faded
from evaluation.gate import judge
from evaluation.policy import Policy
from evaluation.report import Report, RequestFigures
from evaluation.simulation import Arm, report, speed_blocks
from evaluation.telling import next_steps, sentence
from speculation.records import Phase
from tests.evaluation.reshaped import changed

Slower = Callable[[int, int], float]  # block, of how many


def drawn(seed: int, prompts: int = 128) -> Report:
    arms = {"candidate": Arm(0.7), "incumbent": Arm(0.6), "ngram": Arm(0.2)}
    return report(arms, seed=seed, prompts=prompts)


def slower(measured: Report, arm: str, times: Slower) -> Report:
    of = 1 + max(block.block for block in measured.blocks)

    def change(request: RequestFigures) -> RequestFigures:
        by = times(request.block, of)
        seconds, decode = request.seconds * by, request.decode_seconds * by
        return replace(request, seconds=seconds, decode_seconds=decode)

    whole = changed(measured, arm, change, run="speed")
    return replace(whole, blocks=speed_blocks(whole.requests))


def later(by: float) -> Slower:
    return lambda block, of: by if block >= of // 2 else 1.0


@pytest.mark.parametrize("arm", ["candidate", "incumbent", "ngram"])
def test_an_arm_that_alone_slows_down_midway_is_inconclusive_with_the_reason(arm: str) -> None:
    whole = drawn(1, prompts=256)
    assert judge(Policy(), whole).phase is Phase.PASS
    verdict = judge(Policy(), slower(whole, arm, later(2.0)))
    assert verdict.phase is Phase.INCONCLUSIVE
    found = next(f for f in verdict.findings if f.rule == "speed_not_kept")
    assert found.phase is Phase.INCONCLUSIVE
    assert f"the gain of {arm} faded while it was measured" in found.statement
    assert "in the earlier half" in sentence(verdict)
    assert any("becomes slow while the server drafts" in step for step in next_steps(verdict))


ROUNDS = 20


@pytest.mark.parametrize(
    ("arm", "times"),
    [
        ("candidate", lambda block, of: 1.0),
        ("candidate", lambda block, of: 2.0 if block < 3 else 1.0),  # K is learnt
        ("candidate", lambda block, of: 0.5 if block < 2 else 1.0),  # K is learnt, from easy ones
        ("none", lambda block, of: 3.0 if block < 2 else 1.0),  # plain decoding warms up
    ],
    ids=["as good", "K learnt", "K from easy ones", "plain warms up"],
)
def test_what_is_no_fading_is_not_called_one_more_than_once_in_twenty(
    arm: str, times: Slower
) -> None:
    alarms = sum(any(faded(slower(drawn(seed), arm, times))) for seed in range(ROUNDS))
    assert alarms <= 4, f"{alarms} of {ROUNDS}"  # the 99 % binomial bound of 5 %


def test_of_few_or_short_blocks_nothing_is_said() -> None:
    few = slower(drawn(1, prompts=24), "candidate", later(3.0))
    assert not list(faded(few))
    short = slower(drawn(1), "candidate", lambda block, of: 0.01 * later(3.0)(block, of))
    assert not list(faded(short))
