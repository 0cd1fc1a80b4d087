"""The detectors behind the first two, on known values and hand-made sequences."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from scipy import stats

from monitoring.detectors.burning import BUCKETS, BurnRate
from monitoring.detectors.collapse import OFF_REQUESTS, Collapse, RejectedOff
from monitoring.detectors.confidence import ConfidenceSequence, Confirm
from monitoring.detectors.cusum import Cusum, threshold_for
from monitoring.detectors.mixing import MixShift, g_statistic, p_value, split
from monitoring.detectors.windowing import FALL, MOST_KEPT, Adwin


def noise(requests: int, *, seed: int, mean: float = 0.0, spread: float = 0.16) -> list[float]:
    return np.clip(np.random.default_rng(seed).normal(mean, spread, requests), -1, 1).tolist()  # type: ignore[no-any-return]  # floats


def through_json(stored: Any) -> Any:
    return json.loads(json.dumps(stored))


# CUSUM: how it is calibrated


@pytest.mark.parametrize(("spread", "wanted"), [(0.1267, 3.58), (0.1620, 5.69), (0.2160, 9.75)])
def test_the_threshold_follows_the_spread_of_requests(spread: float, wanted: float) -> None:
    assert threshold_for(spread, run_length=1e7) == pytest.approx(wanted, abs=0.01)


def test_a_spread_that_cannot_be_is_not_believed() -> None:
    assert threshold_for(0.0) == threshold_for(0.08)
    assert threshold_for(5.0) == threshold_for(0.30)


def test_the_calibrated_run_length_is_about_the_one_asked_for() -> None:
    """At a short run length, so that it can be counted: 1,000 streams on the edge of the slack."""
    wanted, spread, generator = 300.0, 0.16, np.random.default_rng(7)
    level = np.zeros(1000)
    length = np.zeros(1000)
    running = np.ones(1000, dtype=bool)
    threshold = threshold_for(spread, run_length=wanted)
    for number in range(1, 6000):
        falls = generator.normal(0.02, spread, 1000)
        level = np.maximum(0.0, level + falls - 0.05)
        over = running & (level > threshold)
        length[over], running = number, running & ~over
        if not running.any():
            break
    assert not running.any()
    assert length.mean() == pytest.approx(wanted, rel=0.15)  # the approximation is good to 5 %


# Collapse: K driven to 0


def test_requests_that_rejections_left_without_a_draft_count_and_do_not_clear() -> None:
    collapse = Collapse(alive=0.35)
    for t in range(3):
        collapse.update(judged=64, accepted=0, at=float(t))
    assert not collapse.excursion.on
    level = collapse.excursion.level
    assert level > collapse.excursion.threshold  # sure, but of three requests
    assert not collapse.update(judged=0, accepted=0, at=3.0)
    assert not collapse.update(judged=0, accepted=0, at=4.0, rejected_off=True)
    assert collapse.update(judged=0, accepted=0, at=5.0, rejected_off=True)
    assert collapse.excursion.level == level
    assert collapse.excursion.since == 0.0


def test_a_healthy_draft_turned_off_by_rejections_is_no_collapse_by_that_alone() -> None:
    collapse = Collapse(alive=0.35)
    collapse.update(judged=64, accepted=45, at=0.0)
    assert not any(
        collapse.update(judged=0, accepted=0, at=float(t), rejected_off=True) for t in range(1000)
    )


def test_a_draft_that_is_used_again_is_not_off() -> None:
    off = RejectedOff()
    for t in range(OFF_REQUESTS):
        off.update(True, at=float(t))
    assert off.on
    assert not off.update(False, at=9.0)
    assert not off.update(True, at=10.0)
    assert off.since == 10.0


# ADWIN


def test_adwin_says_nothing_of_healthy_requests_and_sees_a_fall() -> None:
    adwin = Adwin()
    assert not any(adwin.update(v, at=float(t)) for t, v in enumerate(noise(5000, seed=1)))
    fallen = [adwin.update(v, at=float(t)) for t, v in enumerate(noise(600, seed=2, mean=-0.2))]
    assert fallen.index(True) < 200
    assert adwin.level > FALL


def test_adwin_does_not_alarm_at_a_rise_and_ends_with_recovery() -> None:
    adwin = Adwin()
    values = noise(500, seed=1) + noise(600, seed=2, mean=0.2)
    assert not any(adwin.update(v, at=float(t)) for t, v in enumerate(values))
    for t, v in enumerate(noise(600, seed=3, mean=-0.2)):
        adwin.update(v, at=2000.0 + t)
    assert adwin.on
    assert 1990 <= adwin.since <= 2050
    states = [adwin.update(v, at=3000.0 + t) for t, v in enumerate(noise(600, seed=4, mean=0.2))]
    assert not states[-1]


def test_a_stored_adwin_says_what_an_unbroken_one_does() -> None:
    values = noise(2 * MOST_KEPT, seed=1) + noise(700, seed=2, mean=-0.1)
    through, stored = Adwin(), Adwin()
    for number, value in enumerate(values):
        if number % 97 == 0:
            stored = Adwin.from_json(through_json(stored.to_json()))
        at = float(number)
        assert through.update(value, at=at) == stored.update(value, at=at)
    assert through.on
    assert through.to_json() == stored.to_json()
    assert len(through.values) <= MOST_KEPT


def test_without_river_adwin_is_never_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitoring.detectors.windowing._river", lambda: None)
    adwin = Adwin()
    values = noise(300, seed=1) + noise(3000, seed=2, mean=-0.5)
    assert not any(adwin.update(v, at=float(t)) for t, v in enumerate(values))
    assert len(adwin.values) <= MOST_KEPT


# The confidence sequence


def test_the_confidence_sequence_has_its_known_values() -> None:
    constant, alternating = ConfidenceSequence(0.05), ConfidenceSequence(0.05)
    for number in range(1000):
        constant.update(0.5)
        alternating.update(number % 2)
    assert constant.bounds == pytest.approx((0.4951, 0.5049), abs=5e-5)
    assert alternating.bounds == pytest.approx((0.4170, 0.5807), abs=5e-5)


def test_the_confidence_sequence_holds_the_truth_at_every_moment() -> None:
    """60 sequences looked at 500 times; at level 0.05 more than 9 that miss are a fault (99 %)."""
    draws = np.random.default_rng(3).random((60, 500)) < 0.3
    missed = 0
    for row in draws:
        sequence, missing = ConfidenceSequence(0.05), False
        for value in row:
            sequence.update(float(value))
            low, high = sequence.bounds
            missing = missing or not low <= 0.3 <= high
        missed += missing
    assert missed <= 9


def test_a_fall_is_confirmed_and_a_small_one_is_not() -> None:
    confirm = Confirm()
    assert not any(
        confirm.update(v, at=float(t)) for t, v in enumerate(noise(3000, seed=1, mean=-0.02))
    )
    states = [confirm.update(v, at=3000.0 + t) for t, v in enumerate(noise(600, seed=2, mean=-0.2))]
    assert states.index(True) < 300
    assert confirm.since >= 2500.0
    assert confirm.level > confirm.margin


def test_a_stored_confirmation_goes_on_where_it_stopped() -> None:
    one, other = Confirm(), Confirm()
    for t, v in enumerate(noise(800, seed=1, mean=-0.05)):
        one.update(v, at=float(t))
        if t % 50 == 0:
            other = Confirm.from_json(through_json(asdict(other)))
        other.update(v, at=float(t))
    assert one == other


# Burn rate


def test_the_budget_may_be_spent_slowly() -> None:
    burn = BurnRate()
    assert not any(burn.update(n % 60 == 0, at=10.0 * n) for n in range(10_000))


@pytest.mark.parametrize(
    ("share", "hours"), [(1.0, 1.0), (0.32, 1.5), (0.15, 7.0)], ids=["all", "third", "seventh"]
)
def test_too_many_below_the_floor_are_seen(share: float, hours: float) -> None:
    burn, chance = BurnRate(), np.random.default_rng(1)
    for n in range(3 * 360):  # three hours of one every ten seconds
        burn.update(bool(chance.random() < 0.01), at=10.0 * n)
    assert not burn.on
    begun = 3 * 3600.0
    at = next(
        at
        for n in range(10_000)
        if burn.update(bool(chance.random() < share), at=(at := begun + 10.0 * n))
    )
    assert at - begun <= hours * 3600
    assert burn.since <= at
    assert burn.requests >= 10


def test_an_alarm_ends_soon_after_its_cause() -> None:
    burn = BurnRate()
    for n in range(360):
        burn.update(True, at=10.0 * n)
    assert burn.on
    states = [burn.update(False, at=3600.0 + 10.0 * n) for n in range(7 * 360)]
    assert not states[-1]  # the slowest pair looks back six hours


def test_a_few_bad_requests_of_few_are_no_alarm() -> None:
    burn = BurnRate()
    assert not any(burn.update(True, at=10.0 * n) for n in range(9))


def test_buckets_are_bounded_and_clocks_may_jump() -> None:
    burn = BurnRate()
    for at in (0.0, 1e9, 5.0, 1e9 + 400_000.0, 3.0, 1e9 + 400_301.0):
        burn.update(True, at=at)
    assert len(burn.all) == len(burn.below) <= BUCKETS
    assert BurnRate(**through_json(asdict(burn))) == burn


# Mix


def test_the_test_of_shares_is_scipys() -> None:
    before, now = {"a": 800, "b": 200, "c": 7}, {"a": 50, "b": 150, "d": 3}
    table = [[800, 200, 7, 0], [50, 150, 0, 3]]
    wanted = stats.chi2_contingency(table, lambda_="log-likelihood", correction=False)
    g, degrees = g_statistic(before, now)
    assert degrees == 3
    assert g == pytest.approx(wanted.statistic)
    for value in (3.0, 25.0, 35.0):  # far out the approximation is off by some times, upwards
        assert p_value(value, 3) == pytest.approx(stats.chi2.sf(value, 3), rel=9.0)


def test_a_change_is_split_into_mix_and_slices() -> None:
    was, now = {"a": 0.5, "b": 0.5}, {"a": 0.5, "b": 0.5}
    found = split(was, now, were={"a": 0.8, "b": 0.6}, are={"a": 0.7, "b": 0.6})
    assert [found.by_mix, found.within] == pytest.approx([0.0, -0.05])
    new = split({"a": 1.0}, {"a": 0.5, "new": 0.5}, were={"a": 0.8}, are={"a": 0.8, "new": 0.2})
    assert new.within == pytest.approx(0.0)  # of a slice never seen nobody knows what it was


def test_shares_that_differ_by_chance_or_do_not_show_are_no_shift() -> None:
    mix, chance = MixShift(), np.random.default_rng(2)
    before = {"a": 800.0, "b": 200.0}
    for at in range(500):
        some = int(chance.binomial(400, 0.2))
        now = {"a": 400.0 - some, "b": float(some)}
        assert not mix.update(before, now, were={"a": 0.8, "b": 0.5}, at=float(at))
    alike = {"a": 0.70, "b": 0.71}
    assert not mix.update(before, {"a": 80.0, "b": 320.0}, were=alike, at=1.0)
    assert not mix.update({}, {"a": 1.0}, were=alike, at=1.0)
    assert not mix.update(before, {}, were=alike, at=1.0)


def test_a_stored_mix_and_cusum_go_on() -> None:
    mix = MixShift()
    mix.update({"a": 800, "b": 200}, {"a": 80, "b": 320}, were={"a": 0.8, "b": 0.5}, at=2.0)
    assert MixShift(**through_json(asdict(mix))) == mix
    assert mix.on
    cusum = Cusum(threshold=threshold_for(0.16))
    assert Cusum(**through_json(asdict(cusum))) == cusum
