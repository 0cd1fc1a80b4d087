"""Counts pool and give every ratio; verdicts say what decided them; records survive JSON."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from speculation.records import Counts, Exchange, Finding, Interval, Phase, Verdict, pool

ONE = Counts(10, 2, 38, 31, (10, 8, 6, 4), (8, 6, 4, 2))
TWO = Counts(5, 1, 9, 9, (5, 2), (2, 1))


def test_every_ratio_follows_from_the_counts() -> None:
    assert ONE.acceptance == 20 / 28
    assert ONE.acceptance_rate == 20 / 38
    assert ONE.acceptance_length == 3.0
    assert ONE.forwards == 12
    assert ONE.hazards == (0.8, 0.75, 4 / 6, 0.5)


def test_counts_are_pooled_whatever_their_draft_lengths() -> None:
    both = pool([ONE, TWO])
    assert both.judged_per_position == (15, 10, 6, 4)
    assert both.acceptance == 23 / 35
    assert (both.rounds, both.plain_forwards, both.drafted, both.emitted) == (15, 3, 47, 40)


def test_nothing_judged_is_no_acceptance_rather_than_zero() -> None:
    plain = Counts(plain_forwards=7, emitted=7)
    assert plain.acceptance is plain.acceptance_rate is plain.acceptance_length is None
    assert pool([]) == Counts()


def test_exchanges_come_back_from_json() -> None:
    told = Exchange(
        *("a", "p-1", "d" * 64, "head", 4, 1.5, 20, 0, ONE, 0.1, 0.2, 0.3, "stop"),
        completion_ids=(1, 2),
    )
    assert Exchange.from_json(json.loads(json.dumps(asdict(told)))) == told


def finding(phase: Phase, statement: str = "so") -> Finding:
    return Finding("speed_over_plain", phase, statement, Interval(1.6, 1.4, 1.8, 8), 1.0)


@pytest.mark.parametrize(
    ("phases", "wanted"),
    [
        (["PASS", "PASS"], Phase.PASS),
        (["PASS", "INCONCLUSIVE"], Phase.INCONCLUSIVE),
        (["INCONCLUSIVE", "FAIL"], Phase.FAIL),
        ([], Phase.INCONCLUSIVE),
    ],
)
def test_a_verdict_passes_only_when_every_rule_passed(phases: list[str], wanted: Phase) -> None:
    assert Verdict.of([finding(Phase(phase)) for phase in phases]).phase is wanted


def test_a_verdict_says_what_decided_it() -> None:
    failed = Verdict.of([finding(Phase.PASS, "fast"), finding(Phase.FAIL, "slow")])
    assert failed.sentence == failed.headline == "FAIL: slow"
    passed = Verdict.of([finding(Phase.PASS, "fast")])
    assert passed.sentence == "PASS: fast"
    assert passed.headline == "PASS: all 1 rules hold: speed over plain 1.600 (limit 1)"
    assert Verdict.from_json(json.loads(json.dumps(asdict(failed)))) == failed
