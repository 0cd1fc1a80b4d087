"""Whose metric names mean what: the built-in server's, vLLM's, SGLang's. One function each.

Samples of one replica at one look in, cumulative figures out. Knows names and labels; knows nothing
of HTTP or of what came before.

Sources: vLLM `vllm/v1/spec_decode/metrics.py` and docs/design/metrics; SGLang
`python/sglang/srt/metrics/collector.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from monitoring.pages import PageError, Sample, read_page
from monitoring.settings import Source
from speculation.records import Counts

RETIRED = "retired"  # the built-in server folds pairs of long ago into this one
MOST_POSITIONS = 256
STARTED = "process_start_time_seconds"


@dataclass(frozen=True, slots=True)
class Reading:
    """What one pair, drafter and slice did at one replica since that was started."""

    pair: str
    drafter: str
    slice: str  # "" where the replica does not tell slices apart
    engine: str  # name and version
    figures: Mapping[str, float] = field(default_factory=dict)  # "rounds", "accepted.0", …
    judged_known: bool = True  # False: what was judged has to be derived

    @property
    def key(self) -> tuple[str, str, str, str]:
        return (self.pair, self.drafter, self.slice, self.engine)


@dataclass(frozen=True, slots=True)
class Gauges:
    """What a server says of its last steps, by itself. Shown, never pooled: it holds no counts."""

    source: str
    acceptance_rate: float | None
    acceptance_length: float | None
    told: str
    pair: str = ""
    drafter: str = ""


@dataclass(frozen=True, slots=True)
class Read:
    """One page."""

    readings: tuple[Reading, ...] = ()
    gauges: tuple[Gauges, ...] = ()
    started: float | None = None  # seconds since the epoch, when the process began


@dataclass(frozen=True, slots=True)
class Adapter:
    """How the pages of one kind of server are read."""

    family: str
    prefixes: tuple[str, ...]
    read: Callable[[Sequence[Sample], Source, str], Read]
    gauges: tuple[str, ...] = ()
    version: str = ""  # path that tells the version, where the page does not

    def page(self, body: bytes | str, source: Source, replica: str = "") -> Read:
        """PageError for a page that cannot be believed."""
        wanted = (*self.prefixes, STARTED)
        samples = read_page(body, prefixes=wanted, family=self.family, gauges=self.gauges)
        return self.read(samples, source, replica)


_BUILTIN = {
    "paceline_rounds_total": "rounds",
    "paceline_plain_forwards_total": "plain_forwards",
    "paceline_drafted_tokens_total": "drafted",
    "paceline_emitted_tokens_total": "emitted",
    "paceline_judged_tokens_total": "judged",
    "paceline_accepted_tokens_total": "accepted",
    "paceline_requests_total": "requests",
}
_BUILD = "paceline_build_info"


def builtin(samples: Sequence[Sample], source: Source, replica: str) -> Read:
    """The built-in server counts everything, by pair, drafter and adapter."""
    version = next((s.labels.get("version", "") for s in samples if s.name == _BUILD), "")
    engine = f"builtin {version}".strip()
    found: dict[tuple[str, str, str], dict[str, float]] = {}
    for sample in samples:
        name, labels = _BUILTIN.get(sample.name), sample.labels
        pair, drafter = labels.get("pair", ""), labels.get("drafter", "")
        if name is None or pair in (RETIRED, ""):  # "": asked before a pair was loaded
            continue
        adapter = labels.get("adapter", "")
        figures = found.setdefault((pair, drafter, adapter), {})
        _add(figures, _figure(name, labels), sample.value)
    readings = tuple(
        Reading(pair, drafter, f"adapter={adapter}" if adapter else "", engine, figures)
        for (pair, drafter, adapter), figures in found.items()
    )
    return Read(readings, started=_started(samples))


_VLLM = {  # earlier versions wrote them without _total
    "vllm:spec_decode_num_drafts": "rounds",
    "vllm:spec_decode_num_draft_tokens": "drafted",
    "vllm:spec_decode_num_accepted_tokens_per_pos": "accepted",
    "vllm:generation_tokens": "emitted",
    "vllm:request_success": "requests",
}


def vllm(samples: Sequence[Sample], source: Source, replica: str) -> Read:
    """vLLM counts rounds, drafted and accepted tokens; not which were judged, nor by request.

    Which pair it serves is configured. Its data-parallel engines are added up; a LoRA adapter has a
    model name of its own, and is a slice where there is more than one.
    """
    found: dict[str, dict[str, float]] = {}
    for sample in samples:
        name = _VLLM.get(sample.name.removesuffix("_total"))
        if name is not None:
            figures = found.setdefault(sample.labels.get("model_name", ""), {})
            _add(figures, _figure(name, sample.labels), sample.value)
    drafting = {model: figures for model, figures in found.items() if "rounds" in figures}
    readings = tuple(
        Reading(
            source.pair,
            source.drafter,
            f"adapter={model}" if len(drafting) > 1 else "",
            "vllm",
            figures,
            judged_known=False,
        )
        for model, figures in drafting.items()
    )
    return Read(readings, started=_started(samples))


_SGLANG = ("sglang:spec_accept_length", "sglang:spec_accept_rate")


def sglang(samples: Sequence[Sample], source: Source, replica: str) -> Read:
    """SGLang's gauges are of its last decoding steps: a window that it chose, without counts."""
    found: dict[str, list[float]] = {name: [] for name in _SGLANG}
    for sample in samples:
        if sample.name in found and math.isfinite(sample.value) and sample.value >= 0:
            found[sample.name].append(sample.value)
    length, rate = (_mean(found[name]) for name in _SGLANG)
    if length is None and rate is None:
        return Read(started=_started(samples))
    told = "SGLang's own gauges of its last steps: no counts, so no interval and no alarm"
    gauges = Gauges(replica, rate, length, told, source.pair, source.drafter)
    return Read((), (gauges,), _started(samples))


ADAPTERS = {
    "builtin": Adapter("paceline_", (*_BUILTIN, _BUILD), builtin),
    "vllm": Adapter("vllm:", tuple(_VLLM), vllm, version="/version"),
    "sglang": Adapter("sglang:", _SGLANG, sglang, gauges=("sglang:",)),
}


def counts_of(figures: Mapping[str, float]) -> Counts:
    """Figures as counts, positions from 0."""
    judged, accepted = _positions(figures, "judged"), _positions(figures, "accepted")
    most = max(len(judged), len(accepted))
    return Counts(
        int(figures.get("rounds", 0)),
        int(figures.get("plain_forwards", 0)),
        int(figures.get("drafted", 0)),
        int(figures.get("emitted", 0)),
        judged + (0,) * (most - len(judged)),
        accepted + (0,) * (most - len(accepted)),
    )


def requests_of(figures: Mapping[str, float]) -> dict[str, int]:
    """Requests that ended, by outcome."""
    return {
        name.removeprefix("requests."): int(value)
        for name, value in figures.items()
        if name.startswith("requests.")
    }


def _figure(name: str, labels: Mapping[str, str]) -> str:
    if name in ("judged", "accepted"):
        return f"{name}.{_position(labels)}"
    if name == "requests":
        return f"requests.{labels.get('outcome', labels.get('finished_reason', ''))}"
    return name


def _position(labels: Mapping[str, str]) -> int:
    text = labels.get("position", "")
    if not text.isdecimal() or len(text) > 3 or int(text) >= MOST_POSITIONS:
        raise PageError(
            f"got position={text[:20]!r}, wanted a draft position: a small whole number"
        )
    return int(text)


def _positions(figures: Mapping[str, float], name: str) -> tuple[int, ...]:
    found = {
        int(key.rpartition(".")[2]): int(value)
        for key, value in figures.items()
        if key.startswith(f"{name}.")
    }
    return tuple(found.get(j, 0) for j in range(max(found, default=-1) + 1))


def _add(figures: dict[str, float], name: str, value: float) -> None:
    figures[name] = figures.get(name, 0.0) + value


def _started(samples: Iterable[Sample]) -> float | None:
    return next((s.value for s in samples if s.name == STARTED), None)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
