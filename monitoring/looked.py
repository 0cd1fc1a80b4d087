"""What a look at all sources showed, and how far each has been read.

Plain records; knows nothing of HTTP. An increase of counters becomes a request here, for detectors
that know nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from monitoring.adapters import Gauges
from monitoring.answers import Served
from monitoring.facts import SourceFault
from monitoring.increases import Increase, Increases
from monitoring.settings import Source
from speculation.records import Exchange

WINDOW = "window"  # outcome of the requests that an increase stands for


@dataclass(slots=True)
class Replica:
    """How far one address has been read."""

    cursor: float = 0.0  # `logged` of the newest exchange taken, or time of the newest sample
    missed: int = 0  # looks in a row without an answer
    silent_since: float | None = None


@dataclass(slots=True)
class Reached:
    """How far all have been read; what outlives the process."""

    replicas: dict[str, Replica] = field(default_factory=dict)
    increases: Increases = field(default_factory=Increases)

    def to_json(self) -> dict[str, Any]:
        return {
            "replicas": {url: asdict(one) for url, one in self.replicas.items()},
            "increases": self.increases.to_json(),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Reached:
        return cls(
            {url: Replica(**one) for url, one in stored["replicas"].items()},
            Increases.from_json(stored["increases"]),
        )


@dataclass(slots=True)
class Looked:
    """What one look showed."""

    served: list[Served] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)  # by the time they ended
    increases: list[Increase] = field(default_factory=list)
    gauges: list[Gauges] = field(default_factory=list)
    faults: list[SourceFault] = field(default_factory=list)


def window(increase: Increase, source: Source) -> Exchange:
    """An increase as a request: a cluster of tokens, which is all that is known of those in it."""
    adapter = increase.slice.partition("adapter=")[2] or None
    return Exchange(
        id=f"{increase.replica} {increase.at:.3f}",
        pair=increase.pair,
        release="",
        drafter=increase.drafter,
        draft_len=source.draft_len,
        started=increase.at,
        prompt_tokens=0,
        prompt_tokens_cached=0,
        counts=increase.counts,
        queue_seconds=0.0,
        prefill_seconds=0.0,
        decode_seconds=0.0,
        outcome=WINDOW,
        adapter=adapter,
        engine=increase.engine,
    )
