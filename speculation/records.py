"""The plain records that cross folders. Standard library only, no tensors, no text processing.

Everything here is frozen and turns into JSON with `dataclasses.asdict`; `from_json` is the way back
where a record is stored and read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import zip_longest
from typing import Any

DRAFT_KINDS = ("model", "head", "ngram", "none")
WITHOUT_WEIGHTS = ("ngram", "none")  # of these; they need no making


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt of a workload, as a line of a prompts file holds it."""

    id: str
    messages: tuple[Mapping[str, str], ...]  # OpenAI chat messages
    reference: str | None = None  # an answer known to be good, where there is one
    task: str = "default"
    language: str = "und"  # BCP 47; "und" is its word for undetermined
    adapter: str | None = None  # name of the target's adapter that is to answer; None: the target


@dataclass(frozen=True, slots=True)
class Counts:
    """What speculation did, as pooled counts; every ratio follows from them.

    A block that ends inside is censored: tokens after the end are neither drafted nor judged.
    """

    rounds: int = 0  # target forwards of one sequence that verified at least one drafted token
    plain_forwards: int = 0  # target forwards of one sequence without a draft, prefill among them
    drafted: int = 0
    emitted: int = 0  # tokens the user got
    judged_per_position: tuple[int, ...] = ()
    accepted_per_position: tuple[int, ...] = ()

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.rounds + other.rounds,
            self.plain_forwards + other.plain_forwards,
            self.drafted + other.drafted,
            self.emitted + other.emitted,
            _add(self.judged_per_position, other.judged_per_position),
            _add(self.accepted_per_position, other.accepted_per_position),
        )

    @property
    def judged(self) -> int:
        return sum(self.judged_per_position)

    @property
    def accepted(self) -> int:
        return sum(self.accepted_per_position)

    @property
    def forwards(self) -> int:
        """Target forwards spent."""
        return self.rounds + self.plain_forwards

    @property
    def acceptance(self) -> float | None:
        """alpha-hat, accepted over judged; None where nothing was judged."""
        return self.accepted / self.judged if self.judged else None

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted over drafted: falls as K grows. What vLLM shows."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def acceptance_length(self) -> float | None:
        """Tokens a round yields, the bonus among them."""
        return 1 + self.accepted / self.rounds if self.rounds else None

    @property
    def hazards(self) -> tuple[float | None, ...]:
        """Accepted over judged at each draft position: the primitive."""
        pairs = zip(self.accepted_per_position, self.judged_per_position, strict=True)
        return tuple(accepted / judged if judged else None for accepted, judged in pairs)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Counts:
        return cls(
            stored["rounds"],
            stored["plain_forwards"],
            stored["drafted"],
            stored["emitted"],
            tuple(stored["judged_per_position"]),
            tuple(stored["accepted_per_position"]),
        )


def pool(counts: Sequence[Counts]) -> Counts:
    """Counts are pooled; ratios are never averaged."""
    return sum(counts, start=Counts())


def _add(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip_longest(left, right, fillvalue=0))


@dataclass(frozen=True, slots=True)
class Exchange:
    """One served request. Counts always; token ids only where capture is switched on."""

    id: str
    pair: str
    release: str  # digest
    drafter: str  # kind, or the arm's name on a trial server
    draft_len: int
    started: float  # seconds since the epoch
    prompt_tokens: int
    prompt_tokens_cached: int
    counts: Counts
    queue_seconds: float
    prefill_seconds: float
    decode_seconds: float
    outcome: str  # "stop", "length", "cancelled", "deadline", "error"
    adapter: str | None = None  # the LoRA adapter that it asked for; counts are kept apart by it
    adaptive: bool = False  # its rounds drafted what paid, and not `draft_len`
    engine: str = ""  # name and version of what served it
    temperature: float | None = None  # it was sampled at
    pace: str | None = None  # its drafter's state when it ended, where K adapts
    running: int = 0  # requests in the engine when it ended, this one among them
    prompt_ids: tuple[int, ...] | None = None
    completion_ids: tuple[int, ...] | None = None

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Exchange:
        def ids(key: str) -> tuple[int, ...] | None:
            return None if stored.get(key) is None else tuple(stored[key])

        plain = {key: stored[key] for key in cls.__slots__ if key in stored}
        return cls(
            **{
                **plain,
                "counts": Counts.from_json(stored["counts"]),
                "prompt_ids": ids("prompt_ids"),
                "completion_ids": ids("completion_ids"),
            }
        )


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence bounds, and the number of independent units behind it."""

    estimate: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.estimate:.3f} [{self.low:.3f}, {self.high:.3f}] (n={self.n})"


class Phase(StrEnum):
    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one rule of the gate found."""

    rule: str
    phase: Phase
    statement: str  # one sentence with the figures it rests on
    interval: Interval | None = None
    threshold: float | None = None
    more: int | None = None  # prompts beyond those measured that would probably decide it
    excused: bool = False  # the policy lets a verdict pass all the same

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Finding:
        interval = stored.get("interval")
        return cls(
            stored["rule"],
            Phase(stored["phase"]),
            stored["statement"],
            None if interval is None else Interval(**interval),
            stored.get("threshold"),
            stored.get("more"),
            stored.get("excused", False),
        )


@dataclass(frozen=True, slots=True)
class Basis:
    """What a verdict rests on: with the same report and policy it is reached again."""

    report: str  # digest
    incumbent: str | None  # digest of the report the incumbent was measured in, where another one
    policy: str  # digest of `limits`
    limits: Mapping[str, Any]  # the policy as it was applied
    alpha: float  # of each bound; below the policy's where growing data were looked at before
    prompts: int
    code_version: str  # of what judged


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the gate says of a candidate: FAIL if any rule failed, PASS only if all passed."""

    phase: Phase
    findings: tuple[Finding, ...]
    context_measured: int | None = None  # tokens, prompt and answer: the longest judged good
    basis: Basis | None = None  # None: judged before this was stored

    @classmethod
    def of(cls, findings: Sequence[Finding]) -> Verdict:
        phases = {finding.phase for finding in findings if not finding.excused}
        if Phase.FAIL in phases:
            return cls(Phase.FAIL, tuple(findings))
        if phases == {Phase.PASS}:
            return cls(Phase.PASS, tuple(findings))
        return cls(Phase.INCONCLUSIVE, tuple(findings))

    @property
    def sentence(self) -> str:
        """The verdict and everything that decided it, for people."""
        deciding = [f.statement for f in self.findings if f.phase is self.phase and not f.excused]
        return f"{self.phase}: " + ("; ".join(deciding) or "no rule had anything to judge")

    @property
    def headline(self) -> str:
        """The verdict in one sentence: after a PASS the figures beside their limits."""
        if self.phase is not Phase.PASS:
            return self.sentence
        figures = ", ".join(
            f"{f.rule.replace('_', ' ')} {f.interval.estimate:.3f} (limit {f.threshold:g})"
            for f in self.findings
            if f.interval is not None and f.threshold is not None
        )
        return f"PASS: all {len(self.findings)} rules hold" + (f": {figures}" if figures else "")

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Verdict:
        basis = stored.get("basis")
        return cls(
            Phase(stored["phase"]),
            tuple(Finding.from_json(f) for f in stored["findings"]),
            stored.get("context_measured"),
            None if basis is None else Basis(**basis),
        )


@dataclass(frozen=True, slots=True)
class Alarm:
    """What monitoring raises: one per pair and cause."""

    id: str  # fixed by pair, cause and start, so that delivering it twice is delivering it once
    pair: str
    release: str
    cause: str  # "release_mismatch", "dead_draft", "drift", ...
    statement: str
    since: float  # seconds since the epoch
    requests: int  # how many the estimate rests on
    evidence: Mapping[str, float] = field(default_factory=dict)
    drafter: str = ""
    slice: str = ""  # "" is the whole pair; else such as "adapter=tenor"
    estimate: Interval | None = None  # alpha-hat since it began, by request
    expected: Interval | None = None  # the baseline's
    action: str = ""  # what is advised, a word
    raised: float = 0.0  # seconds since the epoch, when it was noticed; `since` is when it began
    code_version: str = ""  # of what raised it

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Alarm:
        """Of any version: what it does not know is left out, what it lacks is at its default."""
        known = {key: stored[key] for key in cls.__slots__ if key in stored}
        for key in ("estimate", "expected"):
            if known.get(key) is not None:
                known[key] = Interval(**known[key])
        return cls(**known)
