"""Windows pool, and their intervals take requests as units."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from monitoring.windows import (
    Served,
    acceptance,
    ratio_interval,
    standardised,
    summarise,
    t_quantile,
)
from speculation.records import Counts, Exchange, pool
from tests.monitoring.streams import HEAD, stream


def counts(judged: tuple[int, ...], accepted: tuple[int, ...], plain: int = 1) -> Counts:
    rounds = judged[0] if judged else 0
    return Counts(rounds, plain, sum(judged), 10, judged, accepted)


def served(one: Counts, *, finished: bool = True, busy_seconds: float = 2.0) -> Served:
    return Served(0.0, one, busy_seconds, finished)


def test_counts_are_pooled_and_ratios_never_averaged() -> None:
    long, short = counts((90,), (90,)), counts((10,), (0,))
    interval = acceptance([long, short])
    assert interval is not None
    assert interval.estimate == 0.9  # the mean of the two ratios would be 0.5


def test_plain_forwards_never_look_like_a_dead_draft() -> None:
    off = Counts(rounds=0, plain_forwards=41, emitted=41)
    summary = summarise([served(off)] * 30)
    assert summary.acceptance is None
    assert summary.acceptance_length is None
    assert summary.forwards_per_request is not None
    assert summary.forwards_per_request.estimate == 41
    mixed = acceptance([off, counts((10,), (7,)), off, counts((10,), (7,))])
    assert mixed is not None
    assert (mixed.estimate, mixed.n) == (0.7, 2)


def test_a_cancelled_request_counts_for_acceptance_but_not_for_forwards_per_request() -> None:
    whole, cut = counts((20,), (12,)), counts((2,), (1,))
    summary = summarise([served(whole), served(whole), served(cut, finished=False)])
    assert summary.acceptance is not None
    assert summary.acceptance.estimate == 25 / 42
    assert summary.forwards_per_request is not None
    assert summary.forwards_per_request.estimate == 21


def test_tokens_per_second_leaves_the_queue_out() -> None:
    exchange = Exchange(
        "r", "p", "d", "head", 4, 100.0, 9, 0, counts((10,), (7,)), 50.0, 0.5, 4.5, "stop"
    )
    one = Served.of(exchange)
    assert one.at == 155.0
    assert summarise([one]).tokens_per_second == 2.0


def test_no_request_is_no_figure() -> None:
    summary = summarise([])
    assert summary.requests == 0
    assert summary.acceptance is None
    assert summary.forwards_per_request is None
    assert summary.tokens_per_second is None


def test_intervals_by_request_cover_and_intervals_by_token_would_not() -> None:
    truth = pool(stream(30_000, seed=1)).acceptance
    assert truth is not None
    by_request = by_token = 0
    trials = 250
    requests = stream(60 * trials, seed=2)
    for start in range(0, len(requests), 60):
        window = requests[start : start + 60]
        interval = acceptance(window)
        assert interval is not None
        by_request += interval.low <= truth <= interval.high
        half = 1.96 * math.sqrt(interval.estimate * (1 - interval.estimate) / pool(window).judged)
        by_token += abs(interval.estimate - truth) <= half
    assert 0.91 <= by_request / trials <= 0.99  # 95 % claimed; binomial sd of the share is 0.014
    assert by_token / trials < 0.75


def test_all_or_nothing_accepted_still_leaves_uncertainty() -> None:
    dead = acceptance([counts((30,), (0,))] * 20)
    perfect = acceptance([counts((30,), (30,))] * 20)
    assert dead is not None
    assert perfect is not None
    assert dead.low == 0.0
    assert dead.high == pytest.approx(stats.beta.ppf(0.975, 1, 20))
    assert perfect.low == pytest.approx(1 - dead.high)
    assert perfect.high == 1.0


def test_one_request_says_nothing_of_how_requests_differ() -> None:
    interval = acceptance([counts((30,), (15,))])
    assert interval is not None
    assert (interval.estimate, interval.low, interval.high, interval.n) == (0.5, 0.0, 1.0, 1)


def test_a_ratio_without_a_denominator_is_none() -> None:
    assert ratio_interval([], []) is None
    assert ratio_interval([0.0], [0.0]) is None


@pytest.mark.parametrize("degrees", [4, 9, 30, 199])
def test_the_quantile_of_student_agrees_with_scipy(degrees: int) -> None:
    assert t_quantile(0.975, degrees) == pytest.approx(stats.t.ppf(0.975, degrees), abs=0.02)


def test_weighting_as_the_baseline_takes_the_change_of_draft_len_out() -> None:
    at_four, at_two = (stream(4000, seed=3, hazards=HEAD, draft_len=k) for k in (4, 2))
    raw_four, raw_two = acceptance(at_four), acceptance(at_two)
    assert raw_four is not None
    assert raw_two is not None
    assert raw_two.estimate - raw_four.estimate > 0.03  # alpha-hat itself moves with K
    judged = pool(at_two).judged_per_position
    weighted = standardised(at_four, judged)
    assert weighted is not None
    assert weighted.estimate == pytest.approx(raw_two.estimate, abs=0.01)
    assert weighted.low < weighted.estimate < weighted.high


def test_nothing_shared_with_the_baseline_is_no_figure() -> None:
    assert standardised([counts((10,), (7,))], (0.0, 12.0)) is None
    assert standardised([], (1.0,)) is None
