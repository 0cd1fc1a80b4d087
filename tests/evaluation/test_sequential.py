"""Looking at growing data: as often wrong as one look is, and no sooner sure than it may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from evaluation.client import MeasurementError
from evaluation.gate import judge
from evaluation.measure import measure
from evaluation.policy import Policy
from evaluation.report import PairFacts, Report, report_of
from evaluation.samples import Measurement
from evaluation.sequential import joined, plan_looks, until_sure
from evaluation.simulation import Arm, arm_with, report, request_counts, upto
from evaluation.spending import Looks
from evaluation.statistics import ratio_difference
from speculation.records import Finding, Phase, Prompt, Verdict
from tests.evaluation.fake_endpoint import Fake, serving

POLICY = Policy(prompts=160)
MARGIN, OLD = POLICY.acceptance_margin, 0.55
BOUND = 18  # of 200 at 5 %: the 99 % binomial bound
EVERY = tuple(range(20, 161, 20))  # eight looks
PROMPTS = [
    Prompt(f"q{n}", ({"role": "user", "content": f"question {n}"},), reference="w1 w2 w3")
    for n in range(96)
]


def verdicts(
    truth: float, correlation: float, level: Callable[[int], float]
) -> tuple[list[Phase], list[int]]:
    """200 runs of looking every 20 prompts at a draft that is truly `truth` better: what each came
    to, and after how many prompts. `level`: the alpha of a look."""
    new, old = (
        arm_with(alpha, correlation=correlation, draft_len=4) for alpha in (OLD + truth, OLD)
    )
    phases, ended = [], []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        shared = rng.standard_normal(EVERY[-1])
        columns = []
        for arm in (new, old):
            luck = np.sqrt(0.5) * (shared + rng.standard_normal(EVERY[-1]))
            counts = request_counts(arm, luck, 4, rng)
            columns += [[c.accepted for c in counts], [c.judged for c in counts]]
        table = np.array(columns)
        phase = Phase.INCONCLUSIVE
        for number, prompts in enumerate(EVERY, start=1):
            interval = ratio_difference(*table[:, :prompts], alpha=level(number))
            assert interval is not None
            if interval.low > -MARGIN or interval.high < -MARGIN:
                phase = Phase.PASS if interval.low > -MARGIN else Phase.FAIL
                break
        phases.append(phase)
        ended.append(prompts)
    return phases, ended


def spent(number: int) -> float:
    return Looks(number, EVERY).alpha(0.05)


@pytest.mark.parametrize(
    "correlation", [0.10, *(pytest.param(rho, marks=pytest.mark.slow) for rho in (0.02, 0.20))]
)
def test_at_the_margin_eight_looks_are_wrong_no_more_often_than_one(correlation: float) -> None:
    phases, _ = verdicts(-MARGIN, correlation, spent)
    assert phases.count(Phase.PASS) <= BOUND
    assert phases.count(Phase.FAIL) <= BOUND
    naive, _ = verdicts(-MARGIN, correlation, lambda number: 0.05)
    assert naive.count(Phase.PASS) > BOUND
    assert naive.count(Phase.FAIL) > BOUND


def test_a_clear_case_ends_long_before_the_budget_does() -> None:
    phases, ended = verdicts(0.10, 0.10, spent)
    assert phases.count(Phase.PASS) >= 198
    assert np.mean(ended) < 0.5 * EVERY[-1]


def settled(phase: Phase) -> Verdict:
    return Verdict.of([Finding("told", phase, "so it is")])


WHOLE = report({"candidate": Arm(0.6), "ngram": Arm(0.2)}, seed=1, prompts=64)


def seen_at(look: Looks) -> Report:
    return upto(WHOLE, look.planned[look.number - 1])


def test_looking_ends_with_the_first_conclusive_verdict_and_the_report_says_which_look() -> None:
    told = iter([Phase.INCONCLUSIVE, Phase.FAIL, Phase.PASS])
    found = until_sure(seen_at, lambda measured: settled(next(told)), (20, 40, 64))
    assert found.verdict.phase is Phase.FAIL
    assert [v.phase for v in found.verdicts] == [Phase.INCONCLUSIVE, Phase.FAIL]
    assert found.report.looks == Looks(2, (20, 40, 64))
    assert len(found.report.prompts) == 40


def test_at_the_end_of_the_budget_it_stays_open() -> None:
    seen: list[int] = []
    found = until_sure(
        seen_at,
        lambda measured: settled(Phase.INCONCLUSIVE),
        (20, 40, 64),
        seen=lambda measured, verdict: seen.append(len(measured.prompts)),
    )
    assert found.verdict.phase is Phase.INCONCLUSIVE
    assert seen == [20, 40, 64]
    assert found.report.looks is not None
    assert found.report.looks.last


def test_what_was_cut_short_is_not_looked_at_again() -> None:
    def cut(look: Looks) -> Report:
        return replace(seen_at(look), incomplete="the endpoint died")

    found = until_sure(cut, lambda measured: judge(POLICY, measured), (20, 40, 64))
    assert len(found.verdicts) == 1
    assert "the endpoint died" in found.verdict.sentence


def test_no_look_comes_before_a_verdict_is_possible() -> None:
    assert plan_looks(256, minimum=20) == (64, 128, 192, 256)
    assert plan_looks(50, minimum=20) == (25, 50)
    for impossible in ({"prompts": 0}, {"prompts": 9, "looks": 0}):
        with pytest.raises(ValueError, match="wanted at least one of each"):
            plan_looks(**{"prompts": 10, "minimum": 20, **impossible})
    with pytest.raises(ValueError, match="no looks"):
        until_sure(seen_at, lambda measured: settled(Phase.PASS), ())


def test_a_stored_look_is_judged_the_same_again_and_stricter_than_a_single_one(
    tmp_path: Path,
) -> None:
    arms = {"candidate": Arm(0.60), "incumbent": Arm(0.585), "ngram": Arm(0.15)}
    part = upto(report(arms, seed=3, prompts=160), 120)
    looked = replace(part, looks=Looks(3, (40, 80, 120, 160)))
    looked.write(tmp_path / "report.json")
    stored = Report.read(tmp_path / "report.json")
    assert judge(POLICY, stored) == judge(POLICY, looked)
    rule = "acceptance_over_incumbent"
    wide, narrow = (
        next(f.interval for f in judge(POLICY, each).findings if f.rule == rule)
        for each in (stored, part)
    )
    assert wide is not None
    assert narrow is not None
    level = Looks(3, (40, 80, 120, 160)).alpha(POLICY.alpha)
    wider = stats.t.ppf(1 - level, 119) / stats.t.ppf(1 - POLICY.alpha, 119)
    assert wide.high - wide.low == pytest.approx(wider * (narrow.high - narrow.low))
    assert wider > 1.2


def batch(fake: Fake, folder: Path, prompts: Sequence[Prompt], name: str) -> Measurement:
    return measure(
        fake.url,
        prompts,
        draft_len=4,
        max_tokens=64,
        journal=folder / f"{name}.jsonl",
        concurrency=8,
        speed_prompts=24,
        clock=fake.clock,
        sleep=lambda seconds: None,
    )


def test_on_an_endpoint_a_clear_case_ends_early_and_batches_are_one_measurement(
    tmp_path: Path,
) -> None:
    """What is clear early is the draft; a tail takes more requests, which this policy lets open."""
    policy = replace(POLICY, inconclusive_limit=1)
    fake = Fake({"candidate": 0.8, "incumbent": 0.3, "ngram": 0.1}, delay_seconds=0.0)
    parts: list[Measurement] = []
    looks = plan_looks(len(PROMPTS), minimum=POLICY.minimum_prompts)

    def grown(look: Looks) -> Report:
        first = sum(part.conditions.prompts for part in parts)
        last = look.planned[look.number - 1]
        parts.append(batch(fake, tmp_path, PROMPTS[first:last], f"look-{look.number}"))
        return report_of(joined(parts), facts=PairFacts(incompatible=()))

    with serving(fake):
        found = until_sure(grown, lambda measured: judge(policy, measured), looks)
    assert found.verdict.phase is Phase.PASS, found.verdict.sentence
    assert len(found.verdicts) < len(looks)
    measured = found.report
    assert [p.id for p in measured.prompts] == [p.id for p in PROMPTS[: len(measured.prompts)]]
    assert len(measured.of("candidate")) == measured.conditions.prompts == len(measured.prompts)
    timed = [b for b in measured.blocks if b.arm == "none"]
    assert len({b.block for b in timed}) == len(timed) == 12 * len(parts)
    assert measured.conditions.speed_prompts == 24 * len(parts)


def test_batches_of_different_things_are_not_joined(tmp_path: Path) -> None:
    fake = Fake({"candidate": 0.8, "incumbent": 0.3, "ngram": 0.1}, delay_seconds=0.0)
    with serving(fake):
        first = batch(fake, tmp_path, PROMPTS[:4], "a")
        fake.pairs["candidate"] = "another"
        second = batch(fake, tmp_path, PROMPTS[4:8], "b")
    with pytest.raises(MeasurementError, match="changed between two looks"):
        joined([first, second])
    cut = joined([first, replace(first, errors={"none": 2}, incomplete="it died")])
    assert cut.incomplete == "it died"
    assert cut.errors["none"] == 2
