"""Prometheus text in, what happened since the last look out; the door to prometheus_client.

Knows the names of the built-in server's metrics, counter resets and missed scrapes; knows nothing
of HTTP or of alarms. A pair's counter that fell was started anew: what all counters of that pair
show now is their increase.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from speculation.records import Counts

MAX_CHARACTERS = 8_000_000  # a server of ours answers with some tens of thousands

Labelled = tuple[str, tuple[tuple[str, str], ...]]  # a metric's name, and its labels by name

RETIRED = "retired"  # the server folds pairs of long ago into this one: no activity of now

_SCALARS = {
    "paceline_rounds_total": "rounds",
    "paceline_plain_forwards_total": "plain_forwards",
    "paceline_drafted_tokens_total": "drafted",
    "paceline_emitted_tokens_total": "emitted",
}
_JUDGED = "paceline_judged_tokens_total"
_ACCEPTED = "paceline_accepted_tokens_total"
_REQUESTS = "paceline_requests_total"


class ScrapeError(ValueError):
    """What was answered is not a page of metrics that can be believed."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """The counters of one look, by name and labels."""

    at: float  # seconds since the epoch
    counters: Mapping[Labelled, float]


@dataclass(frozen=True, slots=True)
class Increase:
    """What one pair and drafter did between two looks."""

    counts: Counts
    requests: Mapping[str, int]  # ended, by outcome


def parse(text: str, *, at: float) -> Scrape:
    """Read `paceline_..._total` counters. ScrapeError when it is no metrics page or nonsense."""
    if len(text) > MAX_CHARACTERS:
        raise ScrapeError(
            f"got {len(text)} characters of metrics, wanted at most {MAX_CHARACTERS}: "
            "is this a Paceline server's /metrics?"
        )
    counters: dict[Labelled, float] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name.startswith("paceline_") and sample.name.endswith("_total"):
                    counters[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    except (ValueError, KeyError, IndexError) as error:
        raise ScrapeError(
            f"got text that is no Prometheus metrics ({error}), wanted a Paceline server's /metrics"
        ) from error
    for (name, labels), value in counters.items():
        if not math.isfinite(value) or value < 0:
            raise ScrapeError(f"got {name}{dict(labels)} = {value}, wanted a count of 0 or more")
        if name in (_JUDGED, _ACCEPTED):
            _position(dict(labels))  # checked here, at the door, and not when it is first needed
    return Scrape(at, counters)


@dataclass(slots=True)
class Increases:
    """Turns looks into increases. A missed look only makes the next increase span longer."""

    last: Scrape | None = field(default=None)

    def update(self, scrape: Scrape) -> dict[tuple[str, str], Increase]:
        """By (pair, drafter), those that moved; nothing at the first look, which has no before."""
        before, self.last = self.last, scrape
        if before is None:
            return {}
        anew = {
            _drafter(labels)
            for (name, labels), value in scrape.counters.items()
            if value < before.counters.get((name, labels), 0.0)
        }
        moved = {
            (name, labels): value
            - (0.0 if _drafter(labels) in anew else before.counters.get((name, labels), 0.0))
            for (name, labels), value in scrape.counters.items()
            if _drafter(labels)[0] not in (RETIRED, "")  # "": asked before a pair was loaded
        }
        return _by_drafter({key: value for key, value in moved.items() if value > 0})


def _by_drafter(moved: Mapping[Labelled, float]) -> dict[tuple[str, str], Increase]:
    # Adapters' figures are added up: they run on one pair.
    scalars: dict[tuple[str, str], Counter[str]] = {}
    judged: dict[tuple[str, str], Counter[int]] = {}
    accepted: dict[tuple[str, str], Counter[int]] = {}
    requests: dict[tuple[str, str], Counter[str]] = {}
    for (name, labels), value in moved.items():
        label, key = dict(labels), _drafter(labels)
        if name in _SCALARS:
            scalars.setdefault(key, Counter())[_SCALARS[name]] += int(value)
        elif name == _REQUESTS:
            requests.setdefault(key, Counter())[label.get("outcome", "")] += int(value)
        elif name in (_JUDGED, _ACCEPTED):
            into = judged if name == _JUDGED else accepted
            into.setdefault(key, Counter())[_position(label)] += int(value)
    found = scalars.keys() | judged.keys() | accepted.keys() | requests.keys()
    result = {}
    for key in sorted(found):
        seen = judged.get(key, {}).keys() | accepted.get(key, {}).keys()
        positions = range(min(seen), max(seen) + 1) if seen else range(0)  # from 0 or from 1
        result[key] = Increase(
            Counts(
                **scalars.get(key, Counter()),
                judged_per_position=tuple(judged.get(key, Counter())[j] for j in positions),
                accepted_per_position=tuple(accepted.get(key, Counter())[j] for j in positions),
            ),
            requests.get(key, {}),
        )
    return result


def _drafter(labels: tuple[tuple[str, str], ...]) -> tuple[str, str]:
    label = dict(labels)
    return label.get("pair", ""), label.get("drafter", "")


def _position(label: Mapping[str, str]) -> int:
    text = label.get("position", "")
    if not text.isdecimal() or len(text) > 3:
        raise ScrapeError(f"got position={text!r}, wanted a draft position: a small whole number")
    return int(text)
