"""Metrics: what Prometheus reads is right, bounded, and never falls."""

from __future__ import annotations

import random
import re
from collections import defaultdict

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from serving.metrics import Metrics
from serving.series import MOST_PAIRS, Labels
from speculation.records import Counts

COUNTS = Counts(3, 2, 12, 9, (3, 2, 1, 1), (2, 1, 1, 0))


def fresh() -> Metrics:
    return Metrics(CollectorRegistry())


def use(metrics: Metrics, pair: str, drafter: str = "head", adapter: str = "") -> None:
    labels = Labels(pair, drafter, adapter)
    metrics.request(labels, "stop")
    metrics.fault(labels, "raised")
    metrics.answer(labels, COUNTS)
    metrics.times(labels, latency_seconds=0.3, first_token_seconds=0.02, queue_seconds=0.0)


def sums(metrics: Metrics) -> dict[str, float]:
    """Every counter summed over its pairs."""
    totals: dict[str, float] = defaultdict(float)
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            labels = {k: v for k, v in sample.labels.items() if k != "pair"}
            totals[f"{sample.name}{sorted(labels.items())}"] += sample.value
    return totals


def test_the_counts_are_those_of_the_exchange() -> None:
    metrics = fresh()
    use(metrics, "p-1")
    text = metrics.text().decode()
    for line in (
        'paceline_rounds_total{adapter="",drafter="head",pair="p-1"} 3.0',
        'paceline_plain_forwards_total{adapter="",drafter="head",pair="p-1"} 2.0',
        'paceline_drafted_tokens_total{adapter="",drafter="head",pair="p-1"} 12.0',
        'paceline_emitted_tokens_total{adapter="",drafter="head",pair="p-1"} 9.0',
        'paceline_judged_tokens_total{adapter="",drafter="head",pair="p-1",position="1"} 2.0',
        'paceline_accepted_tokens_total{adapter="",drafter="head",pair="p-1",position="0"} 2.0',
        'paceline_requests_total{adapter="",drafter="head",outcome="stop",pair="p-1"} 1.0',
        'paceline_request_latency_seconds_bucket{adapter="",'
        'drafter="head",le="0.25",pair="p-1"} 0.0',
        'paceline_request_latency_seconds_bucket{adapter="",'
        'drafter="head",le="0.5",pair="p-1"} 1.0',
        'paceline_request_latency_seconds_count{adapter="",drafter="head",pair="p-1"} 1.0',
        'paceline_first_token_seconds_sum{adapter="",drafter="head",pair="p-1"} 0.02',
        'paceline_queue_wait_seconds_bucket{adapter="",drafter="head",le="+Inf",pair="p-1"} 1.0',
        'paceline_drafter_faults_total{adapter="",drafter="head",kind="raised",pair="p-1"} 1.0',
        'paceline_swaps_total{outcome="switched"} 0.0',
    ):
        assert line in text.splitlines(), line


ROUNDING = 1e-9  # seconds of a pair that is retired are added up in another order


@pytest.mark.parametrize("seed", range(4))
def test_no_sum_ever_falls_and_no_number_of_pairs_grows_the_page(seed: int) -> None:
    chance = random.Random(seed)
    pairs = chance.sample(range(MOST_PAIRS + 8), MOST_PAIRS + 8)
    pairs += [chance.randint(0, 60) for _ in range(40)]
    metrics = fresh()
    before: dict[str, float] = {}
    for place, pair in enumerate(pairs, start=1):
        use(metrics, f"p-{pair}", ("head", "ngram")[pair % 2], ("", "tenor")[pair % 3 == 0])
        if place % 8 and place < len(pairs):
            continue  # what is lost stays lost, and reading a page takes its time
        now = sums(metrics)
        assert all(now[name] >= value - ROUNDING for name, value in before.items())
        before = now
    rounds = [value for name, value in before.items() if name.startswith("paceline_rounds_total")]
    assert sum(rounds) == COUNTS.rounds * len(pairs)
    seen = set(re.findall(r'pair="([^"]+)"', metrics.text().decode()))
    assert len(seen) <= MOST_PAIRS + 1


def test_the_pair_in_use_keeps_figures_of_its_own() -> None:
    metrics = fresh()
    for number in range(3 * MOST_PAIRS):
        use(metrics, "p-in-use")
        use(metrics, f"p-{number}")
    assert (
        'paceline_rounds_total{adapter="",drafter="head",pair="p-in-use"} 144.0'
        in metrics.text().decode()
    )


def test_adapters_are_counted_apart_under_one_pair() -> None:
    metrics = fresh()
    use(metrics, "p-1")
    use(metrics, "p-1", adapter="tenor")
    use(metrics, "p-1", adapter="tenor")
    text = metrics.text().decode()
    assert 'paceline_rounds_total{adapter="",drafter="head",pair="p-1"} 3.0' in text
    assert 'paceline_rounds_total{adapter="tenor",drafter="head",pair="p-1"} 6.0' in text


def test_what_is_so_now_is_told_as_it_was_last_set() -> None:
    metrics = fresh()
    metrics.gauges = {"waiting_requests": ("Without a slot.", 3)}
    metrics.served = {"pair": "p-1", "verified": "true"}
    text = metrics.text().decode()
    assert "paceline_waiting_requests 3.0" in text
    assert 'paceline_served{pair="p-1",verified="true"} 1.0' in text
