"""Looking at growing data: as often wrong as one look is, and no sooner sure than it may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from evaluation.client import Answer, MeasurementError
from evaluation.gate import judge
from evaluation.looks import mixed, strata_of
from evaluation.measure import measure
from evaluation.policy import Policy
from evaluation.report import PairFacts, Report, ReportError, report_of
from evaluation.samples import Measurement, Sample, SpeedBlock
from evaluation.sequential import joined, plan_looks, slowed_between, until_sure
from evaluation.simulation import Arm, arm_with, conditions, report, request_counts, upto
from evaluation.spending import Looks
from evaluation.statistics import ratio_difference
from speculation.records import Counts, Finding, Phase, Prompt, Verdict
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


@pytest.mark.slow  # hundreds of requests or of reports
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
STRATA = strata_of(WHOLE.prompts, {})


def seen_at(look: Looks) -> Report:
    return upto(WHOLE, look.planned[look.number - 1])


def test_looking_ends_with_the_first_conclusive_verdict_and_the_report_says_which_look() -> None:
    told = iter([Phase.INCONCLUSIVE, Phase.FAIL, Phase.PASS])
    found = until_sure(seen_at, lambda measured: settled(next(told)), (20, 40, 64), strata=STRATA)
    assert found.verdict.phase is Phase.FAIL
    assert [v.phase for v in found.verdicts] == [Phase.INCONCLUSIVE, Phase.FAIL]
    assert found.report.looks == Looks(2, (20, 40, 64), STRATA)
    assert len(found.report.prompts) == 40


def test_at_the_end_of_the_budget_it_stays_open() -> None:
    seen: list[int] = []
    found = until_sure(
        seen_at,
        lambda measured: settled(Phase.INCONCLUSIVE),
        (20, 40, 64),
        strata=STRATA,
        seen=lambda measured, verdict: seen.append(len(measured.prompts)),
    )
    assert found.verdict.phase is Phase.INCONCLUSIVE
    assert seen == [20, 40, 64]
    assert found.report.looks is not None
    assert found.report.looks.last


def test_what_was_cut_short_is_not_looked_at_again() -> None:
    def cut(look: Looks) -> Report:
        return replace(seen_at(look), incomplete="the endpoint died")

    found = until_sure(cut, lambda measured: judge(POLICY, measured), (20, 40, 64), strata=STRATA)
    assert len(found.verdicts) == 1
    assert "the endpoint died" in found.verdict.sentence


def test_no_look_comes_before_a_verdict_is_possible() -> None:
    assert plan_looks(256, minimum=20) == (64, 128, 192, 256)
    assert plan_looks(50, minimum=20) == (25, 50)
    for impossible in ({"prompts": 0}, {"prompts": 9, "looks": 0}):
        with pytest.raises(ValueError, match="wanted at least one of each"):
            plan_looks(**{"prompts": 10, "minimum": 20, **impossible})
    with pytest.raises(ValueError, match="no looks"):
        until_sure(seen_at, lambda measured: settled(Phase.PASS), (), strata=STRATA)


def test_more_looks_than_a_bootstrap_can_tell_are_refused() -> None:
    assert len(plan_looks(640, minimum=20, looks=8)) == 8
    with pytest.raises(ValueError, match="got 9 looks, wanted at most 8"):
        plan_looks(640, minimum=20, looks=9)


def test_a_stored_look_is_judged_the_same_again_and_stricter_than_a_single_one(
    tmp_path: Path,
) -> None:
    arms = {"candidate": Arm(0.60), "incumbent": Arm(0.585), "ngram": Arm(0.15)}
    part = upto(report(arms, seed=3, prompts=160), 120)
    looked = replace(part, looks=Looks(3, (40, 80, 120, 160), strata_of(part.prompts, {})))
    looked.write(tmp_path / "report.json")
    stored = Report.read(tmp_path / "report.json")
    assert stored.looks == looked.looks
    assert judge(POLICY, stored) == judge(POLICY, looked)
    earlier = looked.as_json()
    del earlier["looks"]["strata"]
    with pytest.raises(ReportError, match="measured until sure by an earlier version"):
        Report.from_json(earlier)
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


@pytest.mark.slow  # hundreds of requests or of reports
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
        found = until_sure(
            grown, lambda measured: judge(policy, measured), looks, strata=strata_of(PROMPTS, {})
        )
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


def paced(seconds: float, count: int) -> Measurement:
    """A batch whose blocks of plain decoding take so long each, and nothing else in it."""
    answer = Answer("p", "r", "none", 0, "", "stop", (), Counts(), 5, 0, 100, 1.0, 0.0, 0.0, 1.0)
    blocks = tuple(SpeedBlock("none", 0.0, 1, number, seconds) for number in range(count))
    timed = tuple(Sample("speed", "none", f"q{n}", 0.0, 1, n, answer) for n in range(count))
    return Measurement(conditions(("none",), count, 4), (), timed, blocks)


@pytest.mark.parametrize(
    ("batches", "slow"),
    [
        ([(1.0, 4), (2.0, 4)], True),  # too few in either to tell by itself
        ([(1.0, 12), (1.0, 12), (1.0, 12), (2.0, 12)], True),  # a half would hide it
        ([(1.0, 4), (1.2, 4), (1.3, 4)], False),
        ([(1.0, 4), (3.0, 3)], False),  # too few to tell
        ([(2.0, 8), (1.0, 8)], False),  # it became faster
    ],
    ids=["small batches", "the last of four", "drift", "few", "faster"],
)
def test_a_machine_that_is_another_one_in_a_later_batch_is_named(
    batches: list[tuple[float, int]], slow: bool
) -> None:
    parts = [paced(seconds, count) for seconds, count in batches]
    found = joined(parts).incomplete
    assert (found is not None) == slow
    assert found is None or "the endpoint slowed down" in found
    assert set(slowed_between(parts)) == ({(0.0, 1)} if slow else set())


def test_of_a_sorted_file_every_look_holds_its_share_of_each_kind() -> None:
    asked = [
        replace(
            PROMPTS[0],
            id=f"p{n}",
            task="b" if n >= 100 else "a",
            language="zh" if n >= 140 else "en",
            adapter="law" if n < 40 else None,
        )
        for n in range(160)
    ]
    tokens = {prompt.id: 900 if n % 100 >= 80 else 90 for n, prompt in enumerate(asked)}
    order = mixed(asked, tokens)
    assert sorted(p.id for p in order) == sorted(p.id for p in asked)
    assert mixed(asked[::-1], tokens) == order  # so that a run that was cut short goes on
    whole = strata_of(asked, tokens)
    assert sum(each.prompts for each in whole) == 160
    for look in (40, 80, 120):
        held = {replace(s, prompts=0): s.prompts for s in strata_of(order[:look], tokens)}
        for each in whole:
            seen = held.get(replace(each, prompts=0), 0)
            assert abs(seen - each.prompts * look / 160) <= 2, each
    alike = [int(p.id[1:]) for p in order if p.task == "a" and p.adapter is None]
    assert abs(float(stats.spearmanr(range(60), alike).statistic)) < 0.5  # nothing of the file's
