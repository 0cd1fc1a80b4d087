"""A page of Prometheus text in, samples that matter out; the door to prometheus_client's parser.

Knows the text format (https://prometheus.io/docs/instrumenting/exposition_formats/) and what a page
may be at most; knows no metric. Only lines that begin as somebody asked reach the parser: a page of
vLLM has a thousand lines of which fifteen matter, and a broken line of others does no harm.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

MOST_SAMPLES = 20_000
MOST_LINE = 4096  # characters: a name and some labels
MOST_LABEL = 512  # of one label's value


class PageError(ValueError):
    """What was answered is not a page of metrics that can be believed."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One line."""

    name: str
    labels: Mapping[str, str]
    value: float


def read_page(
    body: bytes | str,
    *,
    prefixes: Sequence[str],  # of the names that are wanted
    family: str,  # what all names of such a server begin with, such as "vllm:"
    gauges: Sequence[str] = (),  # prefixes of names that may be negative, or not a number
) -> list[Sample]:
    """The wanted samples; none where the server has counted nothing yet.

    PageError for a page without any name of the family (a proxy's error, another program's
    metrics), for too much of it, and for a count that is none.
    """
    text = body if isinstance(body, str) else body.decode("utf-8", errors="replace")
    kept = list(kept_lines(text, prefixes))
    if not kept and text.strip() and not any(kept_lines(text, (family, f"# HELP {family}"))):
        raise PageError(f"got {text.strip()[:80]!r}, wanted metrics that begin with {family!r}")
    if len(kept) > MOST_SAMPLES:
        raise PageError(f"got {len(kept)} lines of metrics, wanted at most {MOST_SAMPLES}")
    if longest := next((line for line in kept if len(line) > MOST_LINE), None):
        raise PageError(
            f"got a line of {len(longest)} characters ({longest[:60]!r}…), wanted at most "
            f"{MOST_LINE}"
        )
    return [_checked(sample, gauges) for sample in _parsed("\n".join(kept) + "\n")]


def kept_lines(text: str, prefixes: Sequence[str]) -> Iterator[str]:
    """Lines that begin with one of the prefixes.

    >>> list(kept_lines("# HELP a b\\nvllm:a 1\\nother{ 2\\nvllm:b 3", ("vllm:a", "vllm:b")))
    ['vllm:a 1', 'vllm:b 3']
    """
    beginnings = tuple(prefixes)
    return (line for line in text.split("\n") if line.startswith(beginnings))


def _parsed(text: str) -> Iterator[Sample]:
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                yield Sample(sample.name, sample.labels, float(sample.value))
    # what a parser of friendly text does on a hostile one
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise PageError(f"got lines that are no Prometheus metrics ({error})") from error


def _checked(sample: Sample, gauges: Sequence[str]) -> Sample:
    if long := next((v for v in sample.labels.values() if len(v) > MOST_LABEL), None):
        raise PageError(
            f"got a label of {len(long)} characters at {sample.name}, wanted at most {MOST_LABEL}"
        )
    if not sample.name.startswith(tuple(gauges)) and not (
        math.isfinite(sample.value) and sample.value >= 0
    ):
        raise PageError(
            f"got {sample.name}{dict(sample.labels)} = {sample.value}, wanted a count of 0 or more"
        )
    return sample
