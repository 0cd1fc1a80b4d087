"""Simulated requests are what they say they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from monitoring.simulation import HEALTHY, Scenario, requests_of, scenarios, stream
from speculation.records import Counts, pool


def correlation(requests: Sequence[Counts]) -> float:
    """Within a request, by the ANOVA estimator (Donner, Int. Stat. Rev. 54, 1986)."""
    judged = np.array([one.judged for one in requests], dtype=float)
    rates = np.array([one.accepted for one in requests]) / judged
    mean = float((judged * rates).sum() / judged.sum())
    between = float((judged * (rates - mean) ** 2).sum()) / (len(requests) - 1)
    within = float((judged * rates * (1 - rates)).sum()) / float((judged - 1).sum())
    usual = (judged.sum() - (judged**2).sum() / judged.sum()) / (len(requests) - 1)
    return (between - within) / (between + (float(usual) - 1) * within)


@pytest.mark.parametrize("wanted", [0.05, 0.10, 0.20])
def test_requests_go_together_as_much_as_was_asked(wanted: float) -> None:
    # one draft position alone: a chain of them ends at the first rejection
    found = stream(3000, seed=1, draft_len=1, correlation=wanted)
    assert correlation(found) == pytest.approx(wanted, abs=0.02)
    rates = [one.accepted / one.judged for one in found]  # pooled, those that took long weigh more
    assert float(np.mean(rates)) == pytest.approx(HEALTHY[0], abs=0.01)


def test_a_scenario_and_a_seed_fix_every_request() -> None:
    scenario = Scenario("healthy", "healthy", 30, lead=20)
    first, again, other = (list(requests_of(scenario, seed)) for seed in (3, 3, 4))
    assert first == again
    assert first != other
    assert len(first) == 50


def alpha(scenario: Scenario, *, adapter: str | None = None) -> tuple[float | None, float | None]:
    """Before and after the lead."""
    found = [one for one in requests_of(scenario, 1) if adapter in (None, one.adapter)]
    before = [one.counts for one in found if one.started < scenario.lead]
    after = [one.counts for one in found if one.started >= scenario.lead]
    return pool(before).acceptance, pool(after).acceptance


def test_what_falls_falls_by_as_much_and_nothing_else_does() -> None:
    by_name = {
        one.name: replace(one, requests=600, lead=600) for one in scenarios((0.10,), after=600)
    }
    before, after = alpha(by_name["fall 0.20"])
    assert before == pytest.approx(0.70, abs=0.02)
    assert after == pytest.approx(0.50, abs=0.02)
    for adapter, fallen in (("a0", 0.40), ("a1", 0.70)):
        _, after = alpha(by_name["one slice of ten"], adapter=adapter)
        assert after == pytest.approx(fallen, abs=0.05)
    for adapter, same in (("short", 0.75), ("long", 0.50)):
        assert alpha(by_name["mix shift alone"], adapter=adapter) == pytest.approx(
            (same, same), abs=0.03
        )
    whole = alpha(by_name["mix shift alone"])
    assert whole == pytest.approx((0.70, 0.55), abs=0.03)


def test_a_draft_that_was_turned_off_is_judged_no_more() -> None:
    scenario = Scenario("off", "paced off", 40, fall=0.7, lead=10)
    judged = [one.counts.judged > 0 for one in requests_of(scenario, 1)]
    assert judged == [True] * 22 + [False] * 28
    assert [one.pace for one in requests_of(scenario, 1)][-1] == "off_by_rejection"
