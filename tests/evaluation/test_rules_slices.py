"""Each slice by itself, small ones together, and when one may be called worse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from evaluation.capping import up_to
from evaluation.gate import judge
from evaluation.parity import Parity
from evaluation.policy import Policy
from evaluation.report import Report
from evaluation.rules_slices import sliced
from evaluation.simulation import Arm, nothing_accepted, report
from evaluation.spending import Looks, Stratum
from evaluation.statistics import ratio_difference
from evaluation.telling import next_steps, sentence
from speculation.records import Phase
from tests.evaluation.reshaped import changed, with_lengths, with_prompts
from tests.evaluation.test_gate import ARMS, GOOD, NGRAM, finding

POLICY = Policy(prompts=160)


def dead_on(measured: Report, prompts: set[str]) -> Report:
    return changed(
        measured,
        "candidate",
        lambda r: replace(r, counts=nothing_accepted(r.counts, 4)) if r.prompt in prompts else r,
    )


KINDS = {  # a fifth of 160 prompts is one value of each kind
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
    measured = KINDS[name](report(ARMS, seed=1, prompts=160))
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
    measured = KINDS["task rare"](report(arms, seed=1, prompts=160))
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


@pytest.mark.parametrize("incumbent", [True, False], ids=["against another", "alone"])
def test_what_is_dead_on_a_slice_too_small_to_judge_is_not_waved_through(incumbent: bool) -> None:
    arms = ARMS if incumbent else {"candidate": GOOD, "ngram": NGRAM}
    measured = with_prompts(
        report(arms, seed=1, prompts=120),
        lambda n, p: replace(p, task="dead" if n < 19 else "few" if n < 24 else "rest"),
    )
    dead = {prompt.id for prompt in measured.prompts[:19]}
    verdict = judge(replace(POLICY, slice_minimum=30), dead_on(measured, dead))
    found = finding(verdict, "slice task dead")
    assert found.phase is Phase.INCONCLUSIVE
    assert "only 19 prompts say so: measure more of it" in found.statement
    assert found.more == 11
    listed = finding(verdict, "slices_not_judged").statement
    assert "task dead (19) 0.000" in listed
    assert ("task dead (19) 0.000 against 0.409 of the" in listed) == incumbent
    assert "Add evaluation prompts of task dead" in " ".join(next_steps(verdict))
    whole = judge(replace(POLICY, slice_minimum=30), measured)
    assert whole.phase is Phase.PASS, "nothing is held against a small slice that does well"
    assert "task few (5)" in finding(whole, "slices_not_judged").statement


def test_of_fewer_than_eight_prompts_no_slice_is_worse_beyond_doubt() -> None:
    measured = with_prompts(
        report(ARMS, seed=1, prompts=120), lambda n, p: replace(p, task="dead" if n < 7 else "rest")
    )
    verdict = judge(POLICY, dead_on(measured, {prompt.id for prompt in measured.prompts[:7]}))
    assert verdict.phase is Phase.PASS
    assert "task dead (7) 0.000 against" in finding(verdict, "slices_not_judged").statement


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
        report({**ARMS, "candidate": GOOD}, seed=4, prompts=600, tasks=tasks)
        for tasks in (("odd", *["rest"] * 19), ("odd", *[f"t{n}" for n in range(19)]))
    )
    odd = {prompt.id for prompt in few.prompts if prompt.task == "odd"}
    worse = Arm(0.20)  # against 0.35, on 30 prompts: beyond the margin by two standard errors
    drawn = report({**ARMS, "candidate": worse}, seed=12, prompts=600)
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


def test_a_slice_of_the_minimum_that_is_worse_by_its_margin_since_some_of_it_is_dead() -> None:
    """One prompt in seven dead: of few prompts there may be none of these, and then no interval
    knows of them. 18 of 200 is what 5 % allows; on 20 prompts it would be more."""
    rng, judged, kept = np.random.default_rng(5), np.full(POLICY.slice_minimum, 60), 2 / 3
    shape, passed, runs = 49.0, 0, 2_000  # of a beta law: the correlation within a prompt is 0.02
    for _ in range(runs):
        chances = rng.beta(kept * shape, (1 - kept) * shape, (2, len(judged)))
        ours, theirs = rng.binomial(judged, chances)
        ours = np.where(rng.random(len(judged)) < POLICY.slice_margin / kept, 0, ours)
        found = ratio_difference(ours, judged, theirs, judged, alpha=POLICY.alpha)
        passed += found is not None and found.low > -POLICY.slice_margin
    assert passed / runs <= 18 / 200, f"{passed} of {runs}"


def early(measured: Report, whole: Mapping[str, int], *, context: int = 256) -> Report:
    """A first look of 40 at 160 prompts, which hold so many of each task."""
    strata = tuple(Stratum(task, "en", "none", context, n) for task, n in whole.items())
    return replace(measured, looks=Looks(1, (40, 160), strata))


def test_at_an_early_look_a_slice_that_a_later_one_will_judge_is_not_waved_through() -> None:
    measured = report(ARMS, seed=1, prompts=40, tasks=("a", "b", "c", "d"))
    last = replace(measured, looks=Looks(1, (40,)))
    assert judge(POLICY, last).phase is Phase.PASS
    verdict = judge(POLICY, early(measured, dict.fromkeys("abcd", 40)))
    found = finding(verdict, "slice task a")
    assert (found.phase, verdict.phase) == (Phase.INCONCLUSIVE, Phase.INCONCLUSIVE)
    assert found.more == 20
    assert "later look" in found.statement


@pytest.mark.parametrize(
    ("tasks", "whole", "waits"),
    [
        (("a",), {"a": 100, "b": 60}, "slice task b"),  # not met yet
        (("a", *["b"] * 9), {"a": 25, "b": 135}, "slice task a"),  # 4 of 40, which grow by more
        (("a",), {"a": 130, **{f"t{n}": 5 for n in range(6)}}, "slice other"),  # of small ones
    ],
    ids=["not met yet", "comes later", "small ones together"],
)
def test_what_an_early_look_has_hardly_met_keeps_the_verdict_open(
    tasks: tuple[str, ...], whole: dict[str, int], waits: str
) -> None:
    measured = report(ARMS, seed=1, prompts=40, tasks=tasks)
    waiting = {
        f.rule: f.phase
        for f in judge(POLICY, early(measured, whole)).findings
        if f.more is not None
    }
    assert waiting[waits] is Phase.INCONCLUSIVE
    assert [rule for rule in waiting if rule.startswith("slice")] == [waits]


def test_what_no_look_will_judge_by_itself_keeps_none_open() -> None:
    measured = report(ARMS, seed=1, prompts=40, tasks=("a", *["b"] * 9))
    verdict = judge(POLICY, early(measured, {"a": 7, "b": 153}))
    assert not [f for f in verdict.findings if f.rule == "slice task a"]
    assert "task a (4)" in finding(verdict, "slices_not_judged").statement


def test_a_small_slice_that_a_later_look_can_tell_to_be_dead_is_waited_for() -> None:
    """Of 4 prompts nobody can tell, and of the 15 there will be, all may be dead."""
    measured = report(ARMS, seed=1, prompts=40, tasks=("a", *["b"] * 9))
    whole = {"a": 15, "b": 145}
    found = finding(judge(POLICY, early(measured, whole)), "slice task a")
    assert (found.phase, found.more) == (Phase.INCONCLUSIVE, 4)
    assert "4 prompts so far: told whether it is dead at a later look, from 8 on" in found.statement
    enough = report(ARMS, seed=1, prompts=40, tasks=("a", *["b"] * 4))
    assert not [f for f in judge(POLICY, early(enough, whole)).findings if f.rule == "slice task a"]


def test_long_contexts_that_are_still_to_come_keep_the_verdict_open() -> None:
    """As estimated beforehand, and as the share of those met says where the estimate is short."""
    measured = report(ARMS, seed=1, prompts=40)
    short = early(measured, {"docstring": 130})
    assert short.looks is not None
    rest = Stratum("docstring", "en", "none", 1024, 30)
    ahead = replace(short, looks=replace(short.looks, strata=(*short.looks.strata, rest)))
    met = early(with_lengths(measured, lambda n: 800 if n % 5 == 0 else 200), {"docstring": 160})
    for each in (ahead, met):
        found = finding(judge(POLICY, each), "slice context up to 1024")
        assert found.phase is Phase.INCONCLUSIVE
    only_short = judge(POLICY, up_to(ahead, 256))  # as a cap of the context would leave it
    assert not [f for f in only_short.findings if f.rule.startswith("slice context")]


def test_an_early_look_that_does_not_say_what_is_to_come_passes_nothing() -> None:
    verdict = judge(POLICY, early(report(ARMS, seed=1, prompts=40), {}))
    assert verdict.phase is Phase.INCONCLUSIVE
    assert "still to come" in finding(verdict, "slices_ahead").statement
