"""Net speed at each load, the first token, the tail, and what a policy forgives."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from evaluation.gate import judge
from evaluation.policy import Policy
from evaluation.report import Report, RequestFigures
from evaluation.simulation import Arm, report, speed_blocks, upto
from evaluation.spending import Looks
from evaluation.telling import sentence
from speculation.records import Phase
from tests.evaluation.reshaped import at_once_too, changed
from tests.evaluation.test_gate import ARMS, finding

POLICY = Policy(prompts=64)
BUSY = 16


def busy(slower: float) -> Report:
    """Good acceptance and a gain alone; at 16 at once the draft's rounds take `slower` times."""
    return at_once_too(report(ARMS, seed=1), BUSY, {"candidate": slower})


def test_good_acceptance_without_a_gain_in_speed_fails() -> None:
    verdict = judge(POLICY, report(ARMS, seed=1, speed=3.0))
    assert finding(verdict, "acceptance_over_incumbent").phase is Phase.PASS
    assert finding(verdict, "speed_over_plain").phase is Phase.FAIL
    assert verdict.phase is Phase.FAIL


def test_a_gain_alone_and_a_loss_at_high_concurrency_fails_and_says_where() -> None:
    verdict = judge(POLICY, busy(3.0))
    assert finding(verdict, "acceptance_over_incumbent").phase is Phase.PASS
    assert finding(verdict, "speed_over_plain").phase is Phase.PASS
    found = finding(verdict, f"speed_over_plain at {BUSY}")
    assert (found.phase, found.threshold) == (Phase.FAIL, 0.97)
    assert f"{BUSY} requests at once" in found.statement
    assert f"it makes answers slower with {BUSY} requests at once" in sentence(verdict)


def test_where_the_draft_must_gain_no_loss_is_not_enough() -> None:
    gain = finding(judge(POLICY, report(ARMS, seed=1)), "speed_over_plain").interval
    assert gain is not None
    level = busy(gain.estimate)  # as fast as plain decoding there, to a few percent
    must = replace(POLICY, must_gain=(1, BUSY))
    found = finding(judge(must, level), f"speed_over_plain at {BUSY}")
    assert (found.phase, found.threshold) == (Phase.INCONCLUSIVE, 1.0)
    lenient = replace(POLICY, speed_elsewhere=0.8)
    assert finding(judge(lenient, level), f"speed_over_plain at {BUSY}").phase is Phase.PASS


def test_a_busy_server_that_nobody_measured_is_named() -> None:
    found = finding(judge(POLICY, report(ARMS, seed=1)), "busy_not_measured")
    assert found.phase is Phase.PASS
    assert "one request at a time only" in found.statement
    assert not [f for f in judge(POLICY, busy(1.0)).findings if f.rule == "busy_not_measured"]


def test_a_load_that_must_gain_and_was_not_measured_is_open() -> None:
    verdict = judge(replace(POLICY, must_gain=(1, 4)), report(ARMS, seed=1))
    found = finding(verdict, "speed_over_plain at 4")
    assert found.phase is Phase.INCONCLUSIVE
    assert "that was not measured" in found.statement
    assert verdict.phase is Phase.INCONCLUSIVE


def late_first_token(request: RequestFigures) -> RequestFigures:
    return replace(request, first_token_seconds=request.seconds)


def test_a_first_token_that_waits_for_the_draft_fails() -> None:
    measured = changed(report(ARMS, seed=1), "candidate", late_first_token, run="speed")
    verdict = judge(POLICY, measured)
    assert finding(verdict, "speed_over_plain").phase is Phase.PASS
    assert finding(verdict, "first_token").phase is Phase.FAIL
    assert verdict.phase is Phase.FAIL


@pytest.mark.parametrize(("scale", "phase"), [(0.01, Phase.PASS), (1.0, Phase.FAIL)])
def test_milliseconds_that_nobody_notices_are_no_late_first_token(
    scale: float, phase: Phase
) -> None:
    """Twice as late: 100 ms, or one."""
    measured = report(ARMS, seed=1)
    for arm, seconds in (("candidate", 0.2 * scale), ("none", 0.1 * scale)):
        at = partial(replace, first_token_seconds=seconds)
        measured = changed(measured, arm, at, run="speed")
    found = finding(judge(POLICY, measured), "first_token")
    assert found.phase is phase, found.statement
    assert found.threshold == (1.25 if phase is Phase.FAIL else 26.0)


def test_an_endpoint_that_does_not_stream_has_no_first_token_and_that_is_open() -> None:
    measured = report(ARMS, seed=1)
    for arm in measured.arms:
        measured = changed(
            measured, arm, lambda r: replace(r, first_token_seconds=None), run="speed"
        )
    assert finding(judge(POLICY, measured), "first_token").phase is Phase.INCONCLUSIVE


def slow_tail(measured: Report) -> Report:
    """One request in eight takes six times as long; the mean moves less than the draft gains."""
    late = {r.prompt for r in measured.of("candidate", "speed")[::8]}
    slow = changed(
        measured,
        "candidate",
        lambda r: replace(r, seconds=r.seconds * 6) if r.prompt in late else r,
        run="speed",
    )
    return replace(slow, blocks=speed_blocks(slow.requests))


def test_a_tail_that_a_good_mean_hides_fails_at_the_p95() -> None:
    measured = slow_tail(report(ARMS, seed=1, prompts=256))
    verdict = judge(POLICY, measured)
    assert finding(verdict, "speed_over_plain").phase is Phase.PASS
    assert finding(verdict, "latency_p95").phase is Phase.FAIL


def test_the_p99_is_judged_above_a_thousand_requests_and_said_to_be_unjudged_below() -> None:
    few = judge(POLICY, report(ARMS, seed=1))
    assert "p99" not in {f.rule.partition("latency_")[2] for f in few.findings}
    assert "from 1,001 requests an arm on" in finding(few, "p99_not_judged").statement
    many = report({"candidate": Arm(0.6), "ngram": Arm(0.15)}, seed=1, prompts=4_100)
    verdict = judge(POLICY, many)
    assert len(many.of("candidate", "speed")) > 1_000
    assert finding(verdict, "latency_p99").phase is Phase.PASS
    assert not [f for f in verdict.findings if f.rule == "p99_not_judged"]


def test_a_p95_is_judged_where_a_sample_can_bound_it_and_said_to_be_unjudged_before() -> None:
    few = slow_tail(report(ARMS, seed=1, prompts=200))  # of these 62 are timed
    assert finding(judge(POLICY, few), "latency_p95").phase is Phase.FAIL
    fewer = slow_tail(report(ARMS, seed=1, prompts=180))
    verdict = judge(POLICY, fewer)
    assert "from 59 requests an arm on, and there were 57" in (
        finding(verdict, "p95_not_judged").statement
    )
    assert not [f for f in verdict.findings if f.rule == "latency_p95"]


def test_a_p95_that_a_later_look_can_bound_is_not_waved_through_now() -> None:
    whole = report(ARMS, seed=1, prompts=400)
    planned = (100, 200, 300, 400)
    for number, open_now in ((1, True), (2, True), (4, False)):
        seen = replace(upto(whole, planned[number - 1]), looks=Looks(number, planned))
        found = finding(judge(POLICY, seen), "latency_p95")
        assert (found.phase is Phase.INCONCLUSIVE) is open_now, found.statement


@pytest.mark.parametrize(
    ("limit", "phase", "excused"), [(0, Phase.FAIL, False), (1, Phase.PASS, True)]
)
def test_a_policy_may_forgive_a_latency_rule_and_the_verdict_says_so(
    limit: int, phase: Phase, excused: bool
) -> None:
    measured = changed(report(ARMS, seed=1), "candidate", late_first_token, run="speed")
    verdict = judge(replace(POLICY, failure_limit=limit), measured)
    found = finding(verdict, "first_token")
    assert (verdict.phase, found.phase, found.excused) == (phase, Phase.FAIL, excused)
    assert ("failure_limit = 1" in found.statement) == excused


def test_more_than_the_limit_forgives_none_and_open_is_not_failed() -> None:
    both = changed(report(ARMS, seed=1, prompts=256), "candidate", late_first_token, run="speed")
    late = replace(POLICY, first_token_over_plain=1.1, p95_over_plain=0.3)  # fails both
    one = judge(replace(late, failure_limit=1), both)
    assert one.phase is Phase.FAIL
    assert not any(f.excused for f in one.findings)
    assert judge(replace(late, failure_limit=2), both).phase is Phase.PASS
    assert judge(replace(late, inconclusive_limit=2), both).phase is Phase.FAIL


def test_nothing_but_latency_is_ever_forgiven() -> None:
    lenient = replace(POLICY, failure_limit=99, inconclusive_limit=99)
    verdict = judge(lenient, report(ARMS, seed=1, prompts=256, speed=6.0))
    assert verdict.phase is Phase.FAIL
    failed = {f.rule: f.excused for f in verdict.findings if f.phase is Phase.FAIL}
    assert failed == {"speed_over_plain": False, "first_token": True, "latency_p95": True}


def test_how_many_more_is_told_in_prompts_of_the_whole_measurement() -> None:
    """Of 256 prompts 64 are timed: what needs so many more timed requests needs four times as many
    prompts."""
    level = Policy(prompts=256, must_gain=(), speed_elsewhere=1.35)
    arms = {"candidate": Arm(0.35), "ngram": Arm(0.15)}
    measured = report(arms, seed=2, prompts=256)
    measured = replace(
        measured,
        conditions=replace(measured.conditions, speed_prompts=len(measured.of("none", "speed"))),
    )
    found = finding(judge(level, measured), "speed_over_plain")
    assert found.interval is not None
    limit = found.interval.high - 0.01  # within the interval, and not its middle
    found = finding(judge(replace(level, speed_elsewhere=limit), measured), "speed_over_plain")
    assert found.phase is Phase.INCONCLUSIVE
    timed = measured.conditions.speed_prompts
    told = int(found.statement.rpartition("about ")[2].split()[0])
    assert found.more == pytest.approx(4 * (timed + told) - 256, abs=8)
