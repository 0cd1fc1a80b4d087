"""What a Prometheus server has scraped, by its query API: raw samples with their own times.

A range selector is asked for as an instant query, since `increase()` extrapolates to fractions and
an instant vector hides what is stale. After a pause the monitor catches up without a gap. Knows the
API's answers (https://prometheus.io/docs/prometheus/latest/querying/api/); counts nothing itself.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from monitoring.adapters import ADAPTERS, STARTED, Read
from monitoring.pages import MOST_SAMPLES, PageError, Sample
from monitoring.settings import Source

LONGEST_SECONDS = 3600.0  # that are caught up with
OVERLAP_SECONDS = 120.0  # two intervals of a usual scrape: samples come late
QUERY = "/api/v1/query"


def query(source: Source, *, since: float, now: float) -> dict[str, str]:
    """The form to post. `since` is the time of the last sample taken.

    >>> source = Source("prometheus", ("http://p:9090",), selector='job="a"', adapter="vllm")
    >>> query(source, since=1000.0, now=1030.0)["query"].partition("|")[0]
    '{__name__=~"(vllm:spec_decode_num_drafts'
    >>> query(source, since=1000.0, now=1030.0)["query"].rpartition("}")[2]
    '[150s]'
    """
    adapter = ADAPTERS[source.adapter]
    names = "|".join((*adapter.prefixes, STARTED))
    within = f",{source.selector.strip().strip('{}')}" if source.selector.strip() else ""
    seconds = math.ceil(min(max(now - since, 0.0), LONGEST_SECONDS) + OVERLAP_SECONDS)
    return {
        "query": f'{{__name__=~"({names})(_total)?"{within}}}[{seconds}s]',
        "time": f"{now:.3f}",
    }


def readings(body: bytes, source: Source, *, since: float) -> Iterator[tuple[str, float, Read]]:
    """Replica, time and page of each scrape after `since`, the oldest first. PageError for an
    answer that is none."""
    scrapes: dict[tuple[float, str], list[Sample]] = {}
    for series in _matrix(body):
        labels = _labels(series)
        replica = "/".join(labels[k] for k in ("instance", "pod") if k in labels)
        name = labels.pop("__name__", "")
        for at, value in _values(series):
            if at > since and math.isfinite(value) and value >= 0:
                scrapes.setdefault((at, replica), []).append(Sample(name, labels, value))
    adapter = ADAPTERS[source.adapter]
    for (at, replica), samples in sorted(scrapes.items(), key=lambda one: one[0]):
        yield replica, at, adapter.read(samples, source, replica)


def _matrix(body: bytes) -> list[Any]:
    try:
        stored = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise PageError(f"got {body[:80]!r}, wanted a Prometheus server's answer") from error
    if not isinstance(stored, dict) or stored.get("status") != "success":
        told = stored if isinstance(stored, dict) else {}
        raise PageError(
            f"Prometheus refused the query: {str(told.get('errorType'))[:40]}, "
            f"{str(told.get('error'))[:300]}"
        )
    data = stored.get("data")
    found = data.get("result") if isinstance(data, dict) else None
    if not isinstance(data, dict) or data.get("resultType") != "matrix" or type(found) is not list:
        raise PageError(f"got {body[:80]!r}, wanted a matrix of samples")
    if len(found) > MOST_SAMPLES:
        raise PageError(f"got {len(found)} series, wanted at most {MOST_SAMPLES}: name a selector")
    return found


def _labels(series: object) -> dict[str, str]:
    metric = series.get("metric") if isinstance(series, dict) else None
    if not isinstance(metric, Mapping):
        raise PageError("got a series without labels")
    return {str(name): str(value) for name, value in metric.items()}


def _values(series: Mapping[str, Any]) -> Iterator[tuple[float, float]]:
    try:
        for at, value in series["values"]:
            yield float(at), float(value)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise PageError(f"got a series with values that are none ({error!r})") from error
