"""What is counted under one pair, drafter and adapter, and how many of these there may be.

Own state, not prometheus_client's labelled children: pairs come and go with every swap, so their
number must be bounded, and a total must never fall. When a pair too many has been seen, the figures
of the one idle longest are added to the label `retired`, so that sums over pairs stay right and
monotone. Knows counts and labels; nothing of Prometheus' text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from speculation.records import Counts

MOST_PAIRS = 16  # with figures of their own
RETIRED = "retired"
BUCKETS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 150, 300)


class Labels(NamedTuple):
    """What a request was answered by. All three are words of ours or the operator's."""

    pair: str = ""  # "" before any was loaded
    drafter: str = ""
    adapter: str = ""  # "" for the target as it is


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
    """Everything counted under the same labels."""

    counts: Counts = Counts()
    requests: dict[str, int] = field(default_factory=dict)  # by outcome
    faults: dict[str, int] = field(default_factory=dict)  # of the drafter, by kind
    latency: Histogram = field(default_factory=Histogram)
    first_token: Histogram = field(default_factory=Histogram)
    queue_wait: Histogram = field(default_factory=Histogram)

    def add(self, other: Series) -> None:
        self.counts += other.counts
        for ours, theirs in ((self.requests, other.requests), (self.faults, other.faults)):
            for word, count in theirs.items():
                ours[word] = ours.get(word, 0) + count
        self.latency.add(other.latency)
        self.first_token.add(other.first_token)
        self.queue_wait.add(other.queue_wait)


class AllSeries:
    """The series by labels, of the pairs used last and of all the others together."""

    def __init__(self) -> None:
        self._by_labels: dict[Labels, Series] = {}  # the one used last is last

    def __iter__(self) -> Iterator[tuple[Labels, Series]]:
        return iter(self._by_labels.items())

    def of(self, labels: Labels) -> Series:
        """The series of these labels, new or not. Using it keeps its pair from being retired."""
        series = self._by_labels.pop(labels, None) or Series()
        self._by_labels[labels] = series
        pairs = list(dict.fromkeys(one.pair for one in self._by_labels if one.pair != RETIRED))
        if len(pairs) > MOST_PAIRS:
            # Labels stand in order of last use, so the first pair may have a drafter used lately;
            # that one is retired with it and comes back with figures from zero.
            for old in [one for one in self._by_labels if one.pair == pairs[0]]:
                retired = self._by_labels.setdefault(old._replace(pair=RETIRED), Series())
                retired.add(self._by_labels.pop(old))
        return series
