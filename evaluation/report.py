"""What is kept of a measurement: every request's figures and the conditions, without any text.

Everything the gate concludes follows from a report alone, so a stored one can be judged again.
Knows figures; knows nothing of limits.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from evaluation.client import Answer
from evaluation.parity import Parity, compare, compare_served
from evaluation.rouge import rouge_l_metric, to_the_letter
from evaluation.samples import (
    ACCEPTANCE,
    AGAIN,
    SPEED,
    Conditions,
    Measurement,
    Sample,
    SpeedBlock,
    prompt_digest,
    question_digest,
)
from evaluation.spending import Looks
from evaluation.started_with import TOLD
from evaluation.typed import TypedError, read
from speculation.records import Counts

FORMAT = "paceline report 2"
BEFORE = ("paceline report 1",)  # measured another way, so that nothing in them can be judged


class ReportError(ValueError):
    """A file that is no report of ours, or one that was changed since it was written."""


@dataclass(frozen=True, slots=True)
class PromptFacts:
    """A prompt, without what it says."""

    id: str
    digest: str  # sha256 of its content
    question: str  # sha256 of what is asked alone, as a draft's lineage knows it
    task: str
    language: str
    adapter: str | None = None  # name of the adapter that answers it


@dataclass(frozen=True, slots=True)
class RequestFigures:
    """One measured request."""

    run: str  # "acceptance", "again", "seeded" or "speed", as in samples.py
    arm: str
    prompt: str  # its id
    temperature: float
    concurrency: int
    block: int
    outcome: str
    counts: Counts
    prompt_tokens: int
    prompt_tokens_cached: int
    completion_tokens: int
    seconds: float
    first_token_seconds: float | None  # of the speed runs, which are streamed
    queue_seconds: float
    prefill_seconds: float
    decode_seconds: float
    # Against plain decoding's acceptance run of the prompt and temperature; of the candidate's
    # "again" against its own, which tells how far its answers spread; of a draft's greedy speed
    # runs against plain's of the same load, where earlier versions compared nothing.
    parity: Parity | None
    rouge_l_reference: float | None  # against the prompt's reference, where it has one


@dataclass(frozen=True, slots=True)
class PairFacts:
    """What is known of the drafts beside figures, so that a stored report is judged the same."""

    incompatible: tuple[str, ...] | None = None  # reasons; None: nobody looked; (): compatible
    learned: tuple[str, ...] = ()  # ids of measured prompts that a draft had learned from
    passed_over: int = 0  # prompts left out since a draft had learned from them
    unknown: tuple[str, ...] = ()  # arms whose draft's training is not on record


@dataclass(frozen=True, slots=True)
class Report:
    """All arms measured in one run."""

    conditions: Conditions
    tokenizer: str  # of ROUGE-L
    prompts: tuple[PromptFacts, ...]
    requests: tuple[RequestFigures, ...]
    blocks: tuple[SpeedBlock, ...] = ()
    facts: PairFacts = PairFacts()  # frozen, so that it may be shared
    errors: Mapping[str, int] = field(default_factory=dict)  # arm to requests that failed
    incomplete: str | None = None  # why measuring ended early; nothing can then be concluded
    looks: Looks | None = None  # which look at growing data this is; None: there was one

    @property
    def arms(self) -> tuple[str, ...]:
        return tuple(self.conditions.pairs)

    def of(
        self,
        arm: str,
        run: str = ACCEPTANCE,
        *,
        concurrency: int | None = None,  # None: all
        temperature: float | None = None,
    ) -> tuple[RequestFigures, ...]:
        """The requests of one arm in one kind of run, in the order they were planned."""
        return tuple(
            r
            for r in self.requests
            if r.arm == arm
            and r.run == run
            and concurrency in (None, r.concurrency)
            and temperature in (None, r.temperature)
        )

    def as_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Report:
        """Raises ReportError for anything that is no report."""
        if stored.get("format") in BEFORE:
            raise ReportError(
                f"got format = {stored['format']!r} of an earlier version, wanted {FORMAT!r}, "
                "which is measured another way: measure again"
            )
        if stored.get("format") != FORMAT:
            raise ReportError(f"got format = {stored.get('format')!r}, wanted {FORMAT!r}")
        looks = stored.get("looks")
        if isinstance(looks, Mapping) and "strata" not in looks:
            raise ReportError(
                "it was measured until sure by an earlier version, which did not keep what kinds "
                "of prompts were still to come: measure again"
            )
        body = {name: value for name, value in stored.items() if name not in ("format", "digest")}
        try:
            report: Report = read(cls, body)
        except TypedError as error:
            raise ReportError(f"not a report: {error}") from error
        return report

    @property
    def digest(self) -> str:
        """sha256 of the report's content, however the file is laid out."""
        return hashlib.sha256(_canonical({"format": FORMAT, **_fields(self)})).hexdigest()

    def write(self, path: Path) -> None:
        """Store it, all or nothing."""
        beside = path.with_name(f".{path.name}.part")
        beside.write_bytes(_canonical({**self.as_json(), "digest": self.digest}) + b"\n")
        os.replace(beside, path)

    @classmethod
    def read(cls, path: Path) -> Report:
        """Raises ReportError when the file is no report or not the one that was written."""
        try:
            stored = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise ReportError(f"{path}: not JSON ({error}), wanted a report.json") from error
        if not isinstance(stored, dict):
            raise ReportError(f"{path}: not a JSON object, wanted a report.json")
        try:
            report = cls.from_json(stored)
            digest = report.digest
        except ValueError as error:
            raise ReportError(
                f"{path}: {error}: name the report.json that `paceline evaluate` wrote"
            ) from error
        if stored.get("digest") != digest:
            raise ReportError(
                f"{path}: digest {str(stored.get('digest'))[:12]} does not fit its content "
                f"{digest[:12]}: it was changed since it was measured"
            )
        return report


def report_of(
    measurement: Measurement, *, tokenizer: str = "words", facts: PairFacts | None = None
) -> Report:
    """Compare the texts, keep the figures."""
    samples = measurement.samples
    first = {(s.arm, s.prompt, s.temperature): s.answer for s in samples if s.run == ACCEPTANCE}
    plain = {(prompt, heat): a for (arm, prompt, heat), a in first.items() if arm == "none"}
    timed = {_timed(s): s.answer for s in samples if (s.run, s.arm) == (SPEED, "none")}
    references = {p.id: p.reference for p in measurement.prompts if p.reference is not None}
    compared = [s for s in samples if _compared(s) and _beside(s) in first]
    served = [
        s
        for s in samples
        if s.run == SPEED
        and s.arm != "none"
        and s.temperature == 0
        and (s.prompt, s.temperature) in plain
        and _timed(s) in timed
    ]
    with_reference = [s for s in samples if s.prompt in references]
    texts: list[tuple[str, str]] = [
        *((s.answer.text, first[_beside(s)].text) for s in compared),
        *((s.answer.text, timed[_timed(s)].text) for s in served),
    ]
    to_references = [(s.answer.text, references[s.prompt]) for s in with_reference]
    scored = _scored([*texts, *to_references], tokenizer=tokenizer)
    # Speculation must not change what no tokenizer counts either: a sign, an indentation, case.
    scored[: len(texts)] = [
        to_the_letter(*pair) if score == 1 and pair[0] != pair[1] else score
        for pair, score in zip(texts, scored, strict=False)
    ]
    parity = {
        s.key: compare(s.answer, first[_beside(s)], rouge_l=score)
        for s, score in zip(compared, scored, strict=False)
    }
    parity |= {
        s.key: compare_served(
            s.answer, timed[_timed(s)], plain[s.prompt, s.temperature], rouge_l=score
        )
        for s, score in zip(served, scored[len(compared) :], strict=False)
    }
    against_reference = {
        s.key: score
        for s, score in zip(with_reference, scored[len(compared) + len(served) :], strict=True)
    }
    return Report(
        measurement.conditions,
        tokenizer,
        tuple(
            PromptFacts(p.id, prompt_digest(p), question_digest(p), p.task, p.language, p.adapter)
            for p in measurement.prompts
        ),
        tuple(_figures(s, parity.get(s.key), against_reference.get(s.key)) for s in samples),
        measurement.blocks,
        facts or PairFacts(),
        measurement.errors,
        measurement.incomplete,
    )


def _scored(texts: Sequence[tuple[str, str]], *, tokenizer: str) -> list[float]:
    """ROUGE-L of each pair of texts, by the metric: its library's seconds are paid here, once."""
    if not texts:
        return []
    found: list[float] = rouge_l_metric().compute(
        predictions=[text for text, _ in texts],
        references=[text for _, text in texts],
        tokenizer=tokenizer,
    )["scores"]
    return found


def _timed(sample: Sample) -> tuple[str, float, int]:
    """By which plain decoding's speed run of the same prompt and load is found."""
    return sample.prompt, sample.temperature, sample.concurrency


def _compared(sample: Sample) -> bool:
    """Every run of a draft that is not timed; and plain's others, the baseline of those."""
    return sample.run != (ACCEPTANCE if sample.arm == "none" else SPEED)


def _beside(sample: Sample) -> tuple[str, str, float]:
    """By which the answer that it is compared with is found: what is asked again has its own."""
    arm = sample.arm if sample.run == AGAIN else "none"
    return arm, sample.prompt, sample.temperature


def _figures(sample: Sample, parity: Parity | None, reference: float | None) -> RequestFigures:
    answer: Answer = sample.answer
    return RequestFigures(
        sample.run,
        sample.arm,
        sample.prompt,
        sample.temperature,
        sample.concurrency,
        sample.block,
        answer.outcome,
        answer.counts,
        answer.prompt_tokens,
        answer.prompt_tokens_cached,
        answer.completion_tokens,
        answer.seconds,
        answer.first_token_seconds,
        answer.queue_seconds,
        answer.prefill_seconds,
        answer.decode_seconds,
        parity,
        reference,
    )


def _canonical(content: Mapping[str, Any]) -> bytes:
    return json.dumps(
        content, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_fields
    ).encode()


def _fields(record: Any) -> dict[str, Any]:
    """A record as JSON has it. `asdict` does the same, ten times slower: it copies deeply.

    What an earlier version did not know is left out where it is empty, so that the digest of what
    that one wrote stays.
    """
    later: tuple[str, ...] = ()
    if isinstance(record, PairFacts) and not record.unknown:
        later = ("unknown",)
    if isinstance(record, Conditions):
        later = tuple(name for name in TOLD if getattr(record, name) is None)
    return {name: getattr(record, name) for name in record.__slots__ if name not in later}
