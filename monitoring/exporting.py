"""The monitor's own /metrics: open alarms, acceptance beside its baseline, what was looked at.

Shows what it was last handed, so nothing that is over stays behind. Bounded: the pairs handed last
and their largest slices. What the built-in server counts is its own page's matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from monitoring.alarms import severity
from monitoring.notices import Notice, Phase
from speculation.records import Alarm, Interval

MOST_PAIRS, MOST_SLICES, MOST_ALARMS = 32, 16, 200
WHOSE = ("pair", "drafter", "slice")
ALARM = ("pair", "drafter", "cause", "slice", "severity")


@dataclass(frozen=True, slots=True)
class Figures:
    """One pair and drafter, or one slice of its requests."""

    pair: str
    drafter: str
    slice: str = ""  # "" is the whole pair
    acceptance: Interval | None = None  # alpha-hat of the last requests
    baseline: float | None = None
    forwards_per_request: float | None = None
    requests: int = 0  # watched since the monitor began
    below_floor: int = 0  # of these


@dataclass(frozen=True, slots=True)
class Shown:
    """Everything of one look."""

    at: float = 0.0  # seconds since the epoch; 0: nothing was looked at yet
    alarms: Sequence[Alarm] = ()  # open now
    figures: Sequence[Figures] = ()  # pairs in the order they were served, the latest last
    sources: Mapping[str, bool] = field(default_factory=dict)  # whether each answered


class Exporter(Collector):
    """Written by the monitor's loop, read by the thread that answers."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._shown, self._raised = Shown(), Counter[str]()
        registry.register(self)

    def show(self, shown: Shown, notices: Sequence[Notice] = ()) -> None:
        """What is so now, and what was told meanwhile."""
        raised = Counter(one.alarm.cause for one in notices if one.phase is Phase.RAISED)
        self._raised = self._raised + raised
        self._shown = shown

    def collect(self) -> Iterator[Metric]:
        shown, raised = self._shown, self._raised  # of one look, whatever comes meanwhile
        alarms = GaugeMetricFamily(
            "paceline_alarm", "1 while an alarm is open; gone when it is over.", labels=ALARM
        )
        for alarm in shown.alarms[:MOST_ALARMS]:
            words = (alarm.pair, alarm.drafter, alarm.cause, alarm.slice, severity(alarm))
            alarms.add_metric(words, 1)
        yield alarms
        total = CounterMetricFamily(
            "paceline_alarms", "Alarms raised since the monitor began.", labels=("cause",)
        )
        for cause, count in sorted(raised.items()):
            total.add_metric((cause,), count)
        yield total
        yield from self._figures(_bounded(shown.figures))
        up = GaugeMetricFamily(
            "paceline_source_up", "Whether a source answered the last look.", labels=("source",)
        )
        for source, answered in shown.sources.items():
            up.add_metric((source,), float(answered))
        yield up
        look = GaugeMetricFamily(
            "paceline_monitor_last_look_timestamp_seconds", "When the last look ended."
        )
        look.add_metric((), shown.at)
        yield look

    def _figures(self, figures: Sequence[Figures]) -> Iterator[Metric]:
        for name, help_text, read in GAUGES:
            gauge = GaugeMetricFamily(f"paceline_{name}", help_text, labels=WHOSE)
            for one in figures:
                value = read(one)
                if value is not None:
                    gauge.add_metric((one.pair, one.drafter, one.slice), value)
            yield gauge
        for name, help_text, count in COUNTERS:
            family = CounterMetricFamily(f"paceline_{name}", help_text, labels=WHOSE)
            for one in figures:
                family.add_metric((one.pair, one.drafter, one.slice), count(one))
            yield family


def _bounded(figures: Sequence[Figures]) -> list[Figures]:
    """Of the pairs served last, the whole and the largest slices."""
    pairs = list(dict.fromkeys((one.pair, one.drafter) for one in reversed(figures)))[:MOST_PAIRS]
    found = []
    for pair in reversed(pairs):
        mine = [one for one in figures if (one.pair, one.drafter) == pair]
        parts = sorted((one for one in mine if one.slice), key=lambda one: -one.requests)
        found += [one for one in mine if not one.slice][:1] + parts[:MOST_SLICES]
    return found


def serve(exporter_registry: CollectorRegistry, port: int) -> Callable[[], None]:
    """Answer on loopback until what it gives is called. Raises OSError for a port that is taken."""
    server, thread = start_http_server(port, "127.0.0.1", exporter_registry)

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return end


Read = Callable[[Figures], float | None]
GAUGES: tuple[tuple[str, str, Read], ...] = (
    (
        "acceptance",
        "Accepted over judged, alpha-hat, of the last requests.",
        lambda one: None if one.acceptance is None else one.acceptance.estimate,
    ),
    (
        "acceptance_low",
        "Its 95 % interval's lower end.",
        lambda one: None if one.acceptance is None else one.acceptance.low,
    ),
    (
        "acceptance_high",
        "Its 95 % interval's upper end.",
        lambda one: None if one.acceptance is None else one.acceptance.high,
    ),
    ("acceptance_baseline", "What it is expected to be.", lambda one: one.baseline),
    (
        "forwards_per_request",
        "Target forwards of a finished request.",
        lambda one: one.forwards_per_request,
    ),
)
COUNTERS: tuple[tuple[str, str, Callable[[Figures], int]], ...] = (
    ("watched_requests", "Requests that the monitor saw.", lambda one: one.requests),
    ("below_floor_requests", "Of these, below the baseline's floor.", lambda one: one.below_floor),
)
