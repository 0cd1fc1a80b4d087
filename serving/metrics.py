"""What the server counts, as Prometheus reads it. Knows counts and names; no requests, no text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from serving.series import BUCKETS_SECONDS, AllSeries, Histogram, Labels
from speculation.records import Counts

COUNTERS = (
    ("rounds", "Target forwards that verified at least one drafted token.", "rounds"),
    ("plain_forwards", "Target forwards without a draft, prefill included.", "plain_forwards"),
    ("drafted_tokens", "Tokens proposed.", "drafted"),
    ("emitted_tokens", "Tokens that users got.", "emitted"),
)
BY_POSITION = (
    ("judged_tokens", "Drafted tokens compared with the target.", "judged_per_position"),
    ("accepted_tokens", "Drafted tokens that the target kept.", "accepted_per_position"),
)
BY_WORD = (
    ("requests", "Requests by outcome.", "outcome", "requests"),
    ("drafter_faults", "Times that a drafter failed and plain decoding went on.", "kind", "faults"),
)
HISTOGRAMS = (
    ("request_latency", "From a request's arrival to its last token.", "latency"),
    ("first_token", "From a request's arrival to its first token.", "first_token"),
    ("queue_wait", "From a request's arrival to its first slot.", "queue_wait"),
)


class Metrics(Collector):
    """The server's figures. Written and scraped in the event loop's thread only."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._series = AllSeries()
        self.swaps: dict[str, int] = {"switched": 0, "failed": 0}
        self.gauges: dict[str, tuple[str, float]] = {}  # of now, by name: what it is, and how much
        self.served: dict[str, str] = {}  # labels of what is served now
        self.version, self.started = "", 0.0  # of the process; seconds since the epoch
        registry.register(self)

    def request(self, labels: Labels, outcome: str) -> None:
        """Count a request. `outcome` is one of a handful of words of ours, never a client's."""
        requests = self._series.of(labels).requests
        requests[outcome] = requests.get(outcome, 0) + 1

    def fault(self, labels: Labels, kind: str) -> None:
        """Count a drafter's failure. `kind` is one of the breaker's words."""
        faults = self._series.of(labels).faults
        faults[kind] = faults.get(kind, 0) + 1

    def answer(self, labels: Labels, counts: Counts) -> None:
        """Count what one answer cost, when it has ended."""
        self._series.of(labels).counts += counts

    def times(
        self,
        labels: Labels,
        *,
        latency_seconds: float,
        first_token_seconds: float | None,
        queue_seconds: float,
    ) -> None:
        """Count how long one request took, when it has ended."""
        series = self._series.of(labels)
        series.latency.observe(latency_seconds)
        series.queue_wait.observe(queue_seconds)
        if first_token_seconds is not None:
            series.first_token.observe(first_token_seconds)

    def text(self) -> bytes:
        """The exposition."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        yield from self._counters()
        yield from self._histograms()
        for name, (help_text, value) in self.gauges.items():
            gauge = GaugeMetricFamily(f"paceline_{name}", help_text)
            gauge.add_metric((), value)
            yield gauge
        served = GaugeMetricFamily(
            "paceline_served", "1 for what is served now.", labels=tuple(self.served)
        )
        if self.served:
            served.add_metric(tuple(self.served.values()), 1)
        yield served
        build = GaugeMetricFamily("paceline_build_info", "1; its version.", labels=("version",))
        build.add_metric((self.version,), 1)
        yield build
        started = GaugeMetricFamily(
            "process_start_time_seconds", "When it began, seconds since the epoch."
        )
        started.add_metric((), self.started)
        yield started
        swaps = CounterMetricFamily(
            "paceline_swaps", "Swaps of the served pair, by outcome.", labels=("outcome",)
        )
        for outcome, count in self.swaps.items():
            swaps.add_metric((outcome,), count)
        yield swaps

    def _counters(self) -> Iterator[Metric]:
        for name, help_text, attribute in COUNTERS:
            family = CounterMetricFamily(f"paceline_{name}", help_text, labels=Labels._fields)
            for labels, series in self._series:
                family.add_metric(labels, getattr(series.counts, attribute))
            yield family
        for name, help_text, attribute in BY_POSITION:
            family = CounterMetricFamily(
                f"paceline_{name}", help_text, labels=(*Labels._fields, "position")
            )
            for labels, series in self._series:
                for position, count in enumerate(getattr(series.counts, attribute)):
                    family.add_metric((*labels, str(position)), count)
            yield family
        for name, help_text, word, attribute in BY_WORD:
            family = CounterMetricFamily(
                f"paceline_{name}", help_text, labels=(*Labels._fields, word)
            )
            for labels, series in self._series:
                for value, count in getattr(series, attribute).items():
                    family.add_metric((*labels, value), count)
            yield family

    def _histograms(self) -> Iterator[Metric]:
        for name, help_text, attribute in HISTOGRAMS:
            family = HistogramMetricFamily(
                f"paceline_{name}_seconds", help_text, labels=Labels._fields
            )
            for labels, series in self._series:
                histogram: Histogram = getattr(series, attribute)
                family.add_metric(labels, _cumulated(histogram.buckets), sum_value=histogram.total)
            yield family


def _cumulated(buckets: Sequence[int]) -> list[tuple[str, float]]:
    total, cumulated = 0, []
    for bound, count in zip((*map(float, BUCKETS_SECONDS), float("inf")), buckets, strict=True):
        total += count
        cumulated.append(("+Inf" if bound == float("inf") else str(bound), float(total)))
    return cumulated
