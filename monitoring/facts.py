"""What is known of a pair and of a source when a diagnosis is asked for: plain records.

Whoever watches fills them in, `diagnosis.py` reads them. Standard library only; no clock, no
statistics, no files. What is not known is None, and accuses nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from speculation.records import Interval

SOURCE_FAULTS = ("source_silent", "source_faulty", "clock_back", "clock_ahead", "unknown_pair")


@dataclass(frozen=True, slots=True)
class Excursion:
    """What a detector says while it is on."""

    since: float  # seconds since the epoch, where it began
    requests: int  # seen in it
    level: float  # its statistic, against its threshold
    detector: str = ""  # its name, for the evidence


@dataclass(frozen=True, slots=True)
class SliceFacts:
    """One slice of a pair's requests: an adapter, a length, a temperature, a source."""

    name: str  # "adapter=tenor", "context up to 512", "source=http://…"
    requests: int = 0  # behind `recent`
    recent: Interval | None = None  # alpha-hat since the fall began
    expected: Interval | None = None  # the baseline's, of this slice where it is known
    share_before: float = 0.0  # of the requests that the baseline rests on
    share_now: float = 0.0  # of the last ones
    fallen: Excursion | None = None  # this slice's own detector
    dead: Excursion | None = None  # a collapse of this slice alone


@dataclass(frozen=True, slots=True)
class Mix:
    """What the mix of slices did, and what it explains (Kitagawa, JASA 50, 1955)."""

    moved: bool  # the shares differ beyond chance, and it shows in alpha-hat
    since: float
    p_value: float
    by_mix: float  # the part of the change that the shares explain; alpha-hat units
    within: Interval | None = None  # the part that slices themselves changed by; below 0: fell


@dataclass(frozen=True, slots=True)
class SourceFault:
    """What is wrong with one source of figures."""

    source: str  # its address, or its configured name
    kind: str  # one of SOURCE_FAULTS
    since: float
    what: str  # got and wanted, for people
    pair: str = ""  # where one pair alone is meant


@dataclass(frozen=True, slots=True)
class Load:
    """How busy what serves the pair was, over the last looks."""

    waiting_share: float | None = None  # of looks with requests that wait
    queue_p95_seconds: float | None = None
    queue_p95_before_seconds: float | None = None  # the same while the baseline was taken
    full_share: float | None = None  # of looks with all slots taken
    since: float | None = None


@dataclass(frozen=True, slots=True)
class Gain:
    """Whether drafting pays, as the server's own pace and its predictions say."""

    pace: str | None = None  # its state: "drafting", "off_by_cost", "off_by_rejection", …
    off_by_cost_share: float | None = None  # of the last requests
    speedup: Interval | None = None  # against plain decoding, measured or predicted S(K)
    load: str = "alone"  # or "loaded": what it was found at
    since: float | None = None
    requests: int = 0  # that the share rests on


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything a diagnosis may rest on, for one pair and drafter."""

    pair: str
    drafter: str
    at: float  # seconds since the epoch, of the newest request
    release: str  # digest of what is served
    expected_release: str | None = None  # digest in the pair's manifest; None where not known
    expected_parts: Mapping[str, str] = field(default_factory=dict)  # digests: weights, template, …
    served_parts: Mapping[str, str] = field(default_factory=dict)
    mismatched_since: float | None = None
    dead: Excursion | None = None
    dying: bool = False  # the dead-draft detector is undecided
    rejected_off: Excursion | None = None  # drafting is off because the target kept rejecting
    fallen: Excursion | None = None  # the CUSUM
    slow: tuple[Excursion, ...] = ()  # ADWIN and the confidence sequence: slower, surer
    confirmed: bool = False  # one of the slow ones confirms the fall
    burning: Excursion | None = None  # too many requests below the floor
    recent: Interval | None = None  # alpha-hat since the fall began
    baseline: Interval | None = None
    slices: tuple[SliceFacts, ...] = ()
    mix: Mix | None = None
    engine: str = ""  # name and version of what serves
    baseline_engine: str = ""  # of what the baseline was taken on
    engine_since: float | None = None
    engine_requests: int = 0  # served since by this engine
    template_since: float | None = None  # the commonest system prompt has changed
    load: Load | None = None
    gain: Gain | None = None
    forwards_per_request: Interval | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause that holds now, before anybody has decided to tell of it."""

    pair: str  # "" for a source that serves none we know
    drafter: str
    release: str
    cause: str  # a name in `causes.CAUSES`
    statement: str
    since: float
    requests: int = 0
    slice: str = ""  # "" is the whole pair
    estimate: Interval | None = None
    expected: Interval | None = None
    evidence: Mapping[str, float] = field(default_factory=dict)
    action: str = ""  # advised: a name in `causes.ACTIONS`

    @property
    def key(self) -> str:
        """The matter: there is one alarm of it at a time."""
        return "|".join((self.pair, self.drafter, self.cause, self.slice))
