"""A baseline knows positions and its own uncertainty."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from monitoring.baselines import MIN_JUDGED, Baseline, deviation
from monitoring.detectors.weights import weight
from speculation.records import Counts, Interval
from tests.monitoring.streams import HEAD, stream


def test_a_baseline_learnt_from_requests_deviates_from_them_by_nothing_on_average() -> None:
    """Requests that accept more judge fewer tokens, so pooled and per-request means differ."""
    requests = stream(500, seed=1, length_follows_acceptance=True)
    baseline = Baseline.of(requests)
    found = [one for request in requests if (one := deviation(request, baseline))]
    total = sum(weight(one.judged) for one in found)
    mean = sum(weight(one.judged) * one.value for one in found) / total
    assert mean == pytest.approx(0.0, abs=1e-12)
    assert abs(baseline.offset) > 0.02  # without it these would be a fall of its own


@pytest.mark.parametrize(("before", "after"), [(4, 8), (4, 2), (8, 1), (2, 8)])
def test_a_change_of_draft_len_alone_deviates_by_less_than_the_allowance(
    before: int, after: int
) -> None:
    baseline = Baseline.of(stream(2000, seed=2, hazards=HEAD, draft_len=before))
    requests = stream(2000, seed=3, hazards=HEAD, draft_len=after)
    found = [one.value for r in requests if (one := deviation(r, baseline))]
    assert abs(sum(found) / len(found)) < 0.04  # of an allowance of 0.05
    assert sum(found) / len(found) > -0.02  # downwards is what would alarm


def test_positions_the_baseline_hardly_judged_are_not_compared() -> None:
    counts = Counts(judged_per_position=(100, MIN_JUDGED - 1), accepted_per_position=(70, 0))
    baseline = Baseline(Interval(0.7, 0.65, 0.75, 50), counts)
    request = Counts(judged_per_position=(10, 7, 5), accepted_per_position=(7, 5, 0))
    found = deviation(request, baseline)
    assert found is not None
    assert found.judged == 10
    assert found.value == pytest.approx(0.0)
    assert baseline.weights() == (100.0, 0.0)


def test_a_request_without_a_draft_does_not_deviate() -> None:
    baseline = Baseline(Interval(0.7, 0.65, 0.75, 50))
    assert deviation(Counts(plain_forwards=40, emitted=40), baseline) is None


def test_a_wide_baseline_says_how_much_wider() -> None:
    assert Baseline(Interval(0.7, 0.695, 0.705, 3000)).excess_uncertainty == 0.0
    assert Baseline(Interval(0.7, 0.62, 0.78, 40)).excess_uncertainty == pytest.approx(0.07)


def test_a_baseline_needs_requests_with_a_draft() -> None:
    with pytest.raises(ValueError, match="got 3 requests that judged no drafted token"):
        Baseline.of([Counts(plain_forwards=5, emitted=5)] * 3)


def test_a_baseline_survives_json() -> None:
    baseline = Baseline.of(stream(50, seed=4))
    assert Baseline.from_json(json.loads(json.dumps(asdict(baseline)))) == baseline
