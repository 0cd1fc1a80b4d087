"""Detectors on hand-made sequences; their rates are in test_g9.py."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from dataclasses import asdict

import monitoring
from monitoring.detectors.collapse import Collapse
from monitoring.detectors.cusum import Cusum
from monitoring.detectors.weights import weight


def test_every_example_in_the_documentation_runs() -> None:
    attempted = 0
    for module in pkgutil.walk_packages(monitoring.__path__, "monitoring."):
        result = doctest.testmod(importlib.import_module(module.name))
        assert result.failed == 0, module.name
        attempted += result.attempted
    assert attempted >= 8


def test_a_fall_within_the_allowance_never_alarms() -> None:
    cusum = Cusum()
    assert not any(cusum.update(0.05, at=float(t)) for t in range(5000))


def test_an_alarm_lasts_until_the_sum_is_back_at_zero() -> None:
    cusum = Cusum()
    while not cusum.update(0.40, at=0.0):
        pass
    states = [cusum.update(0.0, at=1.0) for _ in range(300)]
    assert states[0]
    assert not states[-1]
    assert states == sorted(states, reverse=True)  # it ends once and does not flicker
    assert 100 < sum(states) < 250


def test_the_sum_is_bounded_so_that_recovery_is_noticed_however_long_it_was_bad() -> None:
    cusum = Cusum()
    for _ in range(100_000):
        cusum.update(0.5, at=0.0)
    recovered = next(n for n in range(1, 1000) if not cusum.update(0.0, at=1.0))
    assert recovered <= 241  # twice the threshold, 0.05 a request


def test_since_is_where_the_excursion_began() -> None:
    cusum = Cusum()
    cusum.update(0.5, at=1.0)
    cusum.update(-0.9, at=2.0)
    assert (cusum.level, cusum.requests) == (0.0, 0)
    for second in range(3, 30):
        cusum.update(0.5, at=float(second))
    assert cusum.on
    assert (cusum.since, cusum.requests) == (3.0, 27)


def test_a_short_request_weighs_less_than_a_long_one_and_none_more_than_one() -> None:
    assert weight(1) < weight(4) < weight(16) == 1.0 == weight(500)
    assert weight(0) == 0.0


def test_requests_without_a_judged_token_change_nothing() -> None:
    collapse = Collapse()
    assert not any(collapse.update(judged=0, accepted=0, at=float(t)) for t in range(1000))
    for t in range(20):
        collapse.update(judged=32, accepted=0, at=float(t))
    before = asdict(collapse)
    assert collapse.update(judged=0, accepted=0, at=99.0)
    assert asdict(collapse) == before


def test_a_draft_at_half_its_baseline_has_drifted_and_not_died() -> None:
    collapse = Collapse(alive=0.35)
    assert not any(collapse.update(judged=40, accepted=14, at=float(t)) for t in range(1000))


def test_a_draft_that_guesses_at_random_is_dead() -> None:
    collapse = Collapse(alive=0.35)
    assert any(collapse.update(judged=40, accepted=1, at=float(t)) for t in range(10))


def test_two_odd_requests_are_no_dead_draft() -> None:
    collapse = Collapse(alive=0.45)
    assert not any(collapse.update(judged=200, accepted=0, at=float(t)) for t in range(4))


def test_a_stored_detector_goes_on_where_it_stopped() -> None:
    one, other = Cusum(), Cusum()
    for t in range(50):
        one.update(0.08, at=float(t))
        other = Cusum(**asdict(other))
        other.update(0.08, at=float(t))
    assert one == other
