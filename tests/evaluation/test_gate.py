from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from evaluation.faulty import all_accepted
from evaluation.gate import judge
from evaluation.parity import Parity
from evaluation.policy import Policy
from evaluation.report import PairFacts, Report
from evaluation.simulation import Arm, arm_with, report, upto
from evaluation.started_with import TOLD
from speculation.records import Counts, Finding, Phase, Verdict
from tests.evaluation.reshaped import changed, without

POLICY = Policy(prompts=64)
GOOD, OLD, NGRAM = Arm(0.6), Arm(0.35), Arm(0.15)
ARMS = {"candidate": GOOD, "incumbent": OLD, "ngram": NGRAM}


def finding(verdict: Verdict, rule: str) -> Finding:
    return next(found for found in verdict.findings if found.rule == rule)


def test_a_better_draft_passes_every_rule_and_each_says_so() -> None:
    verdict = judge(POLICY, report(ARMS, seed=1))
    assert verdict.phase is Phase.PASS
    assert [found.rule for found in verdict.findings] == [
        "measured",
        "compatible",
        "prompts_apart",
        "acceptance_over_incumbent",
        "acceptance_floor",
        "forwards_over_ngram",
        "speed_over_plain",
        "first_token",
        "p95_not_judged",
        "p99_not_judged",
        "busy_not_measured",
        "parity",
        "parity_as_served",
    ]
    assert "at most 0.02 worse" in verdict.sentence


def test_the_same_report_always_has_the_same_verdict() -> None:
    measured = report(ARMS, seed=1)
    assert judge(POLICY, measured) == judge(POLICY, Report.from_json(measured.as_json()))


def test_a_worse_draft_fails_on_acceptance() -> None:
    verdict = judge(POLICY, report({**ARMS, "candidate": OLD, "incumbent": GOOD}, seed=1))
    assert verdict.phase is Phase.FAIL
    assert finding(verdict, "acceptance_over_incumbent").phase is Phase.FAIL


def test_a_draft_below_the_floor_fails_though_nothing_serves() -> None:
    verdict = judge(POLICY, report({"candidate": Arm(0.12), "ngram": Arm(0.05)}, seed=1))
    assert finding(verdict, "acceptance_floor").phase is Phase.FAIL
    assert verdict.phase is Phase.FAIL


def test_without_an_incumbent_the_other_rules_judge_alone_and_the_verdict_says_so() -> None:
    verdict = judge(POLICY, report({"candidate": GOOD, "ngram": NGRAM}, seed=1))
    assert verdict.phase is Phase.PASS
    assert "no draft serves this release yet" in verdict.sentence


def test_a_draft_no_better_than_the_free_ngram_draft_does_not_pass() -> None:
    verdict = judge(POLICY, report({**ARMS, "ngram": Arm(0.75)}, seed=1))
    assert finding(verdict, "forwards_over_ngram").phase is Phase.FAIL


def test_the_ngram_draft_itself_is_not_held_against_itself() -> None:
    measured = report({"candidate": GOOD, "ngram": GOOD}, seed=1)
    pairs = {**measured.conditions.pairs, "candidate": "p-ngram"}
    named = replace(measured, conditions=replace(measured.conditions, pairs=pairs))
    assert "they are not one draft" in judge(POLICY, named).findings[0].statement
    theirs = {r.prompt: r.counts for r in measured.of("ngram")}
    itself = changed(named, "candidate", lambda r: replace(r, counts=theirs[r.prompt]))
    assert finding(judge(POLICY, itself), "forwards_over_ngram").phase is Phase.PASS


def test_a_gain_that_noise_could_explain_is_inconclusive_and_says_how_many_more() -> None:
    close = arm_with(GOOD.acceptance(4) + 0.005, correlation=0.1, draft_len=4)
    verdict = judge(POLICY, report({**ARMS, "candidate": close, "incumbent": GOOD}, seed=2))
    found = finding(verdict, "acceptance_over_incumbent")
    assert found.phase is Phase.INCONCLUSIVE
    assert verdict.phase is Phase.INCONCLUSIVE
    assert "more prompts would decide" in found.statement


def nothing(measured: Report) -> Report:
    return upto(measured, 0)


def fewer_than_it_says(measured: Report) -> Report:
    return replace(measured, prompts=(), requests=())


def one_prompt(measured: Report) -> Report:
    return report(ARMS, seed=1, prompts=1)


def not_a_number(measured: Report) -> Report:
    return changed(measured, "none", lambda r: replace(r, seconds=math.nan), run="speed")


def never_drafted(measured: Report) -> Report:
    """Its texts are what they were, so that no length gives it away."""

    def idle(counts: Counts) -> Counts:
        return Counts(plain_forwards=counts.emitted, emitted=counts.emitted)

    return changed(measured, "candidate", lambda r: replace(r, counts=idle(r.counts)))


def counts_are_no_numbers(measured: Report) -> Report:
    """json reads NaN, and every comparison with it is false."""
    nan: Any = math.nan
    return changed(
        measured,
        "candidate",
        lambda r: replace(r, counts=replace(r.counts, accepted_per_position=(nan,) * 4)),
    )


def rouge_is_not_a_number(measured: Report) -> Report:
    return changed(
        measured, "candidate", lambda r: replace(r, parity=Parity(False, 3, 0.1, math.nan))
    )


def a_prompt_has_two_lengths(measured: Report) -> Report:
    """The usage of one answer is not true, or another target gave it."""
    return changed(measured, "ngram", lambda r: replace(r, prompt_tokens=r.prompt_tokens + 1))


def a_block_took_no_time(measured: Report) -> Report:
    return replace(measured, blocks=tuple(replace(b, seconds=0.0) for b in measured.blocks))


def the_first_token_came_after_the_last(measured: Report) -> Report:
    late = 1_000.0
    return changed(
        measured, "candidate", lambda r: replace(r, first_token_seconds=late), run="speed"
    )


def many_requests_failed(measured: Report) -> Report:
    return replace(measured, errors={**measured.errors, "candidate": 2})


def it_ended_early(measured: Report) -> Report:
    return replace(measured, incomplete="http://x is gone: connection refused")


def nobody_compared_tokens(measured: Report) -> Report:
    return replace(measured, facts=PairFacts(incompatible=None))


def it_learned_from_them(measured: Report) -> Report:
    return replace(measured, facts=PairFacts(incompatible=(), learned=("p3",)))


@pytest.mark.parametrize(
    ("unknown", "whose"),
    [
        (("candidate",), "new draft learned"),
        (("incumbent",), "serving draft learned"),
        (("candidate", "incumbent"), "new draft or the serving one learned"),
    ],
)
def test_where_training_is_not_on_record_nobody_claims_that_it_was_on_other_prompts(
    unknown: tuple[str, ...], whose: str
) -> None:
    measured = replace(report(ARMS, seed=1), facts=PairFacts((), unknown=unknown))
    measured = Report.from_json(measured.as_json())
    verdict = judge(POLICY, measured)
    assert verdict.phase is Phase.PASS
    found = finding(verdict, "prompts_apart_unknown")
    assert f"nobody can tell whether the {whose}" in found.statement
    assert "no draft learned" not in " ".join(each.statement for each in verdict.findings)
    demanding = judge(replace(POLICY, training_on_record=True), measured)
    assert demanding.phase is Phase.INCONCLUSIVE
    assert finding(demanding, "prompts_apart_unknown").phase is Phase.INCONCLUSIVE


def test_a_report_of_before_training_could_be_unknown_has_the_digest_it_had() -> None:
    measured = report(ARMS, seed=1)
    stored = measured.as_json()
    del stored["facts"]["unknown"]
    for name in TOLD:  # of its server, which it did not ask
        del stored["conditions"][name]
    told = json.dumps(stored, sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(told.encode()).hexdigest() == measured.digest
    assert Report.from_json(stored).digest == measured.digest


def accepts_more_than_it_judged(measured: Report) -> Report:
    lie = Counts(32, 1, 128, 100, (32, 20, 20, 20), (32, 32, 32, 32))
    return changed(measured, "candidate", lambda r: replace(r, counts=lie, completion_tokens=100))


def emits_more_than_it_can(measured: Report) -> Report:
    return changed(
        measured,
        "candidate",
        lambda r: replace(r, counts=replace(r.counts, emitted=500), completion_tokens=500),
    )


def an_answer_is_missing(measured: Report) -> Report:
    return replace(measured, requests=measured.requests[1:])


def an_answer_is_there_twice(measured: Report) -> Report:
    return replace(measured, requests=(measured.requests[0], *measured.requests))


def plain_drafts(measured: Report) -> Report:
    """What answers in its name drafts, and its texts are as long as they were."""
    return changed(measured, "none", lambda r: replace(r, counts=all_accepted(r.counts)))


def no_speed_runs(measured: Report) -> Report:
    acceptance = tuple(r for r in measured.requests if r.run != "speed")
    return replace(measured, requests=acceptance, blocks=())


def speed_blocks_of_nobody(measured: Report) -> Report:
    return replace(measured, requests=tuple(r for r in measured.requests if r.run != "speed"))


UNTRUSTED: list[tuple[Callable[[Report], Report], str, str]] = [
    (nothing, "measured", "0 prompts were measured and no statistic can be trusted below 20"),
    (fewer_than_it_says, "measured", "speak of 64 prompts and it lists 0"),
    (one_prompt, "measured", "1 prompt was measured and no statistic"),
    (not_a_number, "measured", "none reports what cannot be of prompt 'p0': times of (nan"),
    (counts_are_no_numbers, "measured", "counts that are no whole numbers"),
    (rouge_is_not_a_number, "measured", "ROUGE-L of (None, nan)"),
    (a_prompt_has_two_lengths, "measured", "200 tokens in one answer's usage and 201 in another's"),
    (a_block_took_no_time, "measured", "a block of candidate took 0.0 seconds"),
    (the_first_token_came_after_the_last, "measured", "a first token after 1000.0 seconds of 0.7"),
    (many_requests_failed, "measured", "2 requests of candidate failed beside 92"),
    (it_ended_early, "measured", "measuring ended early: http://x is gone"),
    (nobody_compared_tokens, "compatible", "nobody compared the draft's tokens"),
    (it_learned_from_them, "prompts_apart", "1 of 64 prompts are among those a draft learned from"),
    (never_drafted, "measured", "not one token of the candidate was judged"),
    (accepts_more_than_it_judged, "measured", "more accepted (32, 32, 32, 32) than judged (32, 2"),
    (emits_more_than_it_can, "measured", "500 emitted by 44 accepted and 33 forwards"),
    (an_answer_is_missing, "measured", "candidate answered 63 of 64 prompts, 63 times"),
    (an_answer_is_there_twice, "measured", "candidate answered 64 of 64 prompts, 65 times"),
    (plain_drafts, "measured", "the arm for plain decoding drafted tokens"),
    (no_speed_runs, "speed_over_plain", "what was measured does not tell"),
    (speed_blocks_of_nobody, "measured", "at 1 at once has no requests"),
    (lambda measured: without(measured, "none"), "measured", "'none' was not measured"),
    (lambda measured: without(measured, "ngram"), "measured", "'ngram' was not measured"),
    (lambda measured: without(measured, "candidate"), "measured", "'candidate' was not measured"),
]


@pytest.mark.parametrize(("spoil", "rule", "why"), UNTRUSTED)
def test_data_that_cannot_be_trusted_is_inconclusive_and_says_why(
    spoil: Callable[[Report], Report], rule: str, why: str
) -> None:
    verdict = judge(POLICY, spoil(report(ARMS, seed=1)))
    assert verdict.phase is Phase.INCONCLUSIVE
    assert why in finding(verdict, rule).statement
    assert finding(verdict, rule).phase is Phase.INCONCLUSIVE
    assert len(verdict.sentence) > 40


def test_a_draft_that_does_not_fit_the_target_fails_and_no_other_rule_is_asked() -> None:
    """Its acceptance is that of chance, or of what somebody patched: neither means anything."""
    facts = PairFacts(("token 7 is ' the' in the draft and ' a' in the target",))
    verdict = judge(POLICY, replace(report(ARMS, seed=1), facts=facts))
    assert verdict.phase is Phase.FAIL
    assert [f.rule for f in verdict.findings] == ["measured", "compatible", "prompts_apart"]
    found = finding(verdict, "compatible")
    assert found.phase is Phase.FAIL
    assert "token 7 is ' the' in the draft" in found.statement
    assert verdict.context_measured is None


def phases(candidate: Arm, incumbent: Arm, runs: int, *, draft_len: int = 4) -> list[Phase]:
    arms = {"candidate": candidate, "incumbent": incumbent, "ngram": NGRAM}
    return [
        judge(POLICY, report(arms, seed=1000 + run, draft_len=draft_len)).phase
        for run in range(runs)
    ]


RUNS, MOST = 200, 18  # more than 18 of 200 at 5 % has a chance below 1 %


def test_two_identical_drafts_fail_no_more_often_than_alpha() -> None:
    assert phases(GOOD, GOOD, RUNS).count(Phase.FAIL) <= MOST


def test_a_draft_worse_by_exactly_the_margin_passes_no_more_often_than_alpha() -> None:
    worse = arm_with(GOOD.acceptance(4) - 0.02, correlation=0.1, draft_len=4)
    assert phases(worse, GOOD, RUNS).count(Phase.PASS) <= MOST


def test_a_draft_better_by_a_tenth_passes_on_64_prompts() -> None:
    better = arm_with(GOOD.acceptance(4) + 0.10, correlation=0.1, draft_len=4)
    # by theory 0.99 here (spread of a paired difference about 0.2, distance 0.12)
    assert phases(better, GOOD, 50).count(Phase.PASS) >= 40


def test_an_interval_over_tokens_would_pass_the_worse_draft_far_too_often() -> None:
    """The simulation can tell a broken rule from ours."""
    worse = arm_with(GOOD.acceptance(4) - 0.02, correlation=0.1, draft_len=4)
    passed = 0
    for run in range(RUNS):
        measured = report({"candidate": worse, "incumbent": GOOD}, seed=1000 + run)
        shares = []
        for arm in ("candidate", "incumbent"):
            counts = [request.counts for request in measured.of(arm)]
            judged = sum(c.judged for c in counts)
            share = sum(c.accepted for c in counts) / judged
            shares.append((share, share * (1 - share) / judged))
        (ours, noise), (theirs, other) = shares
        passed += ours - theirs - 1.645 * math.sqrt(noise + other) > -0.02
    assert passed > MOST


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.02, 0.10, 0.20])
@pytest.mark.parametrize("draft_len", [1, 4, 8])
def test_error_rates_hold_at_other_correlations_and_lengths(
    correlation: float, draft_len: int
) -> None:
    good = Arm(0.6, correlation)
    worse = arm_with(
        good.acceptance(draft_len) - 0.02, correlation=correlation, draft_len=draft_len
    )
    assert phases(good, good, RUNS, draft_len=draft_len).count(Phase.FAIL) <= MOST
    assert phases(worse, good, RUNS, draft_len=draft_len).count(Phase.PASS) <= MOST
