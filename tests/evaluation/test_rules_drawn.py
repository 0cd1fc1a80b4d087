"""Parity where tokens are drawn: an arm whose answers spread otherwise than plain decoding's do not
pass, however near to plain decoding's they are, and whether or not they were asked with a seed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from evaluation.comparable import differences
from evaluation.gate import judge
from evaluation.limits import within
from evaluation.parity import Parity
from evaluation.policy import Policy
from evaluation.remedies import remedy
from evaluation.report import Report
from evaluation.rules_drawn import drawn
from evaluation.simulation import report
from evaluation.telling import sentence
from evaluation.work import acceptance, speed
from speculation.records import Interval, Phase, Prompt
from tests.evaluation.reshaped import changed, drawn_too, with_references
from tests.evaluation.test_gate import ARMS, finding

POLICY = Policy(prompts=64)
COLD = report(ARMS, seed=1)
HEAT, AT = 1.0, " at temperature 1"


def judged(name: str, measured: Report) -> Phase:
    return {f.rule: f for f in drawn(measured, POLICY, HEAT)}[f"parity_drawn{name}{AT}"].phase


def scattered(measured: Report, spread: float) -> Report:
    """Drawn texts are as alike as before on average, and vary by prompt."""
    rng = np.random.default_rng(7)
    return replace(
        measured,
        requests=tuple(
            replace(
                r,
                parity=Parity(
                    False, 2, None, float(np.clip(r.parity.rouge_l + rng.normal(0, spread), 0, 1))
                ),
            )
            if r.temperature == HEAT and r.parity is not None and r.arm in ("candidate", "none")
            else r
            for r in measured.requests
        ),
    )


def test_drawn_answers_that_spread_as_plain_decodings_do_are_parity() -> None:
    measured = scattered(drawn_too(COLD, HEAT, 0.4, 0.4), 0.08)
    verdict = judge(POLICY, measured)
    assert verdict.phase is Phase.PASS, verdict.sentence
    assert "as near to those without it" in sentence(verdict)


@pytest.mark.parametrize("spread", [1.0, 0.6], ids=["no temperature", "a lower one"])
def test_a_path_that_seeks_the_mode_is_nearer_to_plain_than_plain_to_itself_and_fails(
    spread: float,
) -> None:
    seeking = drawn_too(COLD, HEAT, 0.6, 0.4, spread=spread)
    verdict = judge(POLICY, scattered(seeking, 0.05))
    found = finding(verdict, f"parity_drawn{AT}")
    assert found.phase is verdict.phase is Phase.FAIL
    assert found.threshold == 0.05
    assert "ignores the temperature: a fault of the server and not of the draft" in found.statement
    assert "report a bug of the server" in remedy(found)
    # Where plain decoding's texts have little in common the mode is no nearer to them.
    unlike = drawn_too(COLD, HEAT, 0.2, 0.2, spread=spread)
    assert judged("", unlike) is Phase.PASS
    assert judged("_spread", unlike) is Phase.FAIL


@pytest.mark.parametrize(
    ("name", "scores"),
    [
        ("", {"rouge_l": 0.2, "spread": 0.4, "seeded": 0.4}),
        ("_spread", {"rouge_l": 0.4, "spread": 0.2, "seeded": 0.4}),
        ("_seeded", {"rouge_l": 0.4, "spread": 0.4, "seeded": 0.7}),
    ],
    ids=["without a seed", "spreads too far", "with a seed"],
)
def test_a_path_that_is_broken_only_with_or_only_without_a_seed_fails(
    name: str, scores: dict[str, float]
) -> None:
    measured = drawn_too(COLD, HEAT, itself=0.4, **scores)
    failed = [f.rule for f in drawn(measured, POLICY, HEAT) if f.phase is not Phase.PASS]
    assert failed == [f"parity_drawn{name}{AT}"]


def test_too_few_drawn_answers_are_inconclusive_and_said_to_be() -> None:
    measured = scattered(drawn_too(COLD, HEAT, 0.4, 0.4), 0.4)
    found = next(f for f in drawn(measured, POLICY, HEAT) if "_spread" in f.rule)
    assert found.phase is Phase.INCONCLUSIVE
    assert found.interval is not None
    assert "differ by chance" in remedy(found)


def test_a_report_that_sent_seeds_does_not_pass_and_is_no_incumbents_beside_one_that_did_not() -> (
    None
):
    new = drawn_too(COLD, HEAT, 0.4, 0.4)
    kept = tuple(
        r for r in new.requests if r.arm != "candidate" or r.run in ("acceptance", "speed")
    )
    old = changed(
        replace(new, requests=kept),
        "candidate",
        lambda r: replace(r, parity=Parity(True, None, None, 1.0)),
    )
    (found,) = drawn(old, POLICY, HEAT)
    assert found.phase is Phase.INCONCLUSIVE
    assert "measured by an earlier version" in found.statement
    assert "Measure again" in remedy(found)
    assert differences(new, new) == differences(old, old) == []
    assert "drew with a seed" in differences(new, old)[0]
    assert differences(COLD, COLD) == []


def test_references_are_held_against_both_of_plain_decodings_answers() -> None:
    measured = drawn_too(with_references(COLD, 0.1, 0.02), HEAT, 0.4, 0.4)
    found = next(f for f in drawn(measured, POLICY, HEAT) if "_references" in f.rule)
    assert found.phase is Phase.FAIL
    assert found.interval is not None
    assert found.interval.n == 64


@pytest.mark.parametrize(
    ("low", "high", "phase"),
    [
        (-0.04, 0.04, Phase.PASS),
        (0.06, 0.10, Phase.FAIL),
        (-0.10, -0.06, Phase.FAIL),
        (0.02, 0.06, Phase.INCONCLUSIVE),
        (-0.06, -0.02, Phase.INCONCLUSIVE),
        (-0.20, 0.20, Phase.INCONCLUSIVE),
    ],
)
def test_a_margin_has_two_sides(low: float, high: float, phase: Phase) -> None:
    found = within("rule", "told", Interval((low + high) / 2, low, high, 64), 0.05, POLICY)
    assert found.phase is phase
    assert found.threshold == (0.05 if low + high >= 0 else -0.05)
    assert within("rule", "told", None, 0.05, POLICY).phase is Phase.INCONCLUSIVE


def test_only_plain_decoding_and_a_check_of_seeds_are_asked_with_a_seed() -> None:
    prompts = [Prompt(f"q{n}", ({"role": "user", "content": f"{n}"},)) for n in range(8)]
    arms = ("candidate", "incumbent", "ngram", "none")
    asked = list(acceptance(prompts, arms, (0.0, 0.7), concurrency=4, seed=3))
    assert len({work.key for work in asked}) == len(asked)
    assert not any(work.seed is not None for work in asked if work.temperature == 0)
    seeds = {
        kind: [w.seed for w in asked if (w.run, w.arm) == kind and w.temperature > 0]
        for kind in dict.fromkeys((w.run, w.arm) for w in asked)
    }
    assert seeds.pop(("acceptance", "none")) == list(range(3, 11))
    assert seeds.pop(("again", "none")) == seeds.pop(("seeded", "candidate"))
    assert set(seeds) == {("again", "candidate"), *(("acceptance", arm) for arm in arms[:3])}
    assert all(found == [None] * 8 for found in seeds.values())
    blocks = speed(prompts, arms, (0.7,), (1,), count=8)
    assert {work.seed for block in blocks for part in block for work in part.work} == {None}
