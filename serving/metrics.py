"""What the server counts, as Prometheus reads it. Knows counts and names; no requests, no text.

Own state and one collector, not prometheus_client's labelled children: pairs come and go with every
swap, so their number must be bounded, and a total must never fall. When a pair too many has been
seen, the figures of the one idle longest are added to the label `retired`, so that sums over pairs
stay right and monotone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from speculation.records import Counts

MOST_PAIRS = 16  # with figures of their own
RETIRED = "retired"
BUCKETS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 150, 300)
LABELS = ("pair", "drafter")
Key = tuple[str, str]  # pair, drafter


@dataclass
class Histogram:
    """How many observations fell at or below each bound, not cumulated; the last is beyond all."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_SECONDS) + 1))
    total: float = 0.0

    def observe(self, seconds: float) -> None:
        place = next(
            (i for i, bound in enumerate(BUCKETS_SECONDS) if seconds <= bound), len(BUCKETS_SECONDS)
        )
        self.buckets[place] += 1
        self.total += seconds

    def add(self, other: Histogram) -> None:
        self.buckets = [
            ours + theirs for ours, theirs in zip(self.buckets, other.buckets, strict=True)
        ]
        self.total += other.total


@dataclass
class Series:
    """Everything counted under one pair and drafter."""

    counts: Counts = Counts()
    requests: dict[str, int] = field(default_factory=dict)  # by outcome
    latency: Histogram = field(default_factory=Histogram)
    first_token: Histogram = field(default_factory=Histogram)
    queue_wait: Histogram = field(default_factory=Histogram)

    def add(self, other: Series) -> None:
        self.counts += other.counts
        for outcome, count in other.requests.items():
            self.requests[outcome] = self.requests.get(outcome, 0) + count
        self.latency.add(other.latency)
        self.first_token.add(other.first_token)
        self.queue_wait.add(other.queue_wait)


class Metrics(Collector):
    """The server's figures. Written and scraped in the event loop's thread only."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._series: dict[Key, Series] = {}  # the pair used last is last
        self.swaps: dict[str, int] = {"switched": 0, "failed": 0}
        self.running = 0
        registry.register(self)

    def request(self, pair: str, drafter: str, outcome: str) -> None:
        """Count a request. `outcome` is one of a handful of words of ours, never a client's."""
        requests = self._of(pair, drafter).requests
        requests[outcome] = requests.get(outcome, 0) + 1

    def exchange(
        self,
        pair: str,
        drafter: str,
        counts: Counts,
        *,
        latency_seconds: float,
        first_token_seconds: float | None,
        queue_seconds: float,
    ) -> None:
        """Count what one request cost, when it has ended."""
        series = self._of(pair, drafter)
        series.counts += counts
        series.latency.observe(latency_seconds)
        series.queue_wait.observe(queue_seconds)
        if first_token_seconds is not None:
            series.first_token.observe(first_token_seconds)

    def text(self) -> bytes:
        """The exposition."""
        return generate_latest(self._registry)

    def _of(self, pair: str, drafter: str) -> Series:
        key = (pair, drafter)
        series = self._series.pop(key, None) or Series()
        self._series[key] = series
        pairs = list(dict.fromkeys(p for p, _ in self._series if p != RETIRED))
        if len(pairs) > MOST_PAIRS:
            # Keys stand in order of last use, so the first pair may have a drafter used lately;
            # that one is retired with it and comes back with figures from zero.
            for old in [key for key in self._series if key[0] == pairs[0]]:
                retired = self._series.setdefault((RETIRED, old[1]), Series())
                retired.add(self._series.pop(old))
        return series

    def collect(self) -> Iterator[Metric]:
        yield from self._counters()
        yield from self._histograms()
        running = GaugeMetricFamily("paceline_running_requests", "Requests accepted and not ended.")
        running.add_metric((), self.running)
        yield running
        swaps = CounterMetricFamily(
            "paceline_swaps", "Swaps of the served pair, by outcome.", labels=("outcome",)
        )
        for outcome, count in self.swaps.items():
            swaps.add_metric((outcome,), count)
        yield swaps

    def _counters(self) -> Iterator[Metric]:
        for name, help_text, attribute in (
            ("rounds", "Target forwards that verified at least one drafted token.", "rounds"),
            (
                "plain_forwards",
                "Target forwards without a draft, prefill included.",
                "plain_forwards",
            ),
            ("drafted_tokens", "Tokens proposed.", "drafted"),
            ("emitted_tokens", "Tokens that users got.", "emitted"),
        ):
            family = CounterMetricFamily(f"paceline_{name}", help_text, labels=LABELS)
            for key, series in self._series.items():
                family.add_metric(key, getattr(series.counts, attribute))
            yield family
        for name, help_text, attribute in (
            ("judged_tokens", "Drafted tokens compared with the target.", "judged_per_position"),
            ("accepted_tokens", "Drafted tokens that the target kept.", "accepted_per_position"),
        ):
            family = CounterMetricFamily(
                f"paceline_{name}", help_text, labels=(*LABELS, "position")
            )
            for key, series in self._series.items():
                for position, count in enumerate(getattr(series.counts, attribute)):
                    family.add_metric((*key, str(position)), count)
            yield family
        family = CounterMetricFamily(
            "paceline_requests", "Requests by outcome.", labels=(*LABELS, "outcome")
        )
        for key, series in self._series.items():
            for outcome, count in series.requests.items():
                family.add_metric((*key, outcome), count)
        yield family

    def _histograms(self) -> Iterator[Metric]:
        for name, help_text, attribute in (
            ("request_latency", "From arrival to the last token.", "latency"),
            ("first_token", "From arrival to the first token.", "first_token"),
            ("queue_wait", "From arrival to a slot.", "queue_wait"),
        ):
            family = HistogramMetricFamily(f"paceline_{name}_seconds", help_text, labels=LABELS)
            for key, series in self._series.items():
                histogram: Histogram = getattr(series, attribute)
                family.add_metric(key, _cumulated(histogram.buckets), sum_value=histogram.total)
            yield family


def _cumulated(buckets: Sequence[int]) -> list[tuple[str, float]]:
    total, cumulated = 0, []
    for bound, count in zip((*map(float, BUCKETS_SECONDS), float("inf")), buckets, strict=True):
        total += count
        cumulated.append(("+Inf" if bound == float("inf") else str(bound), float(total)))
    return cumulated
