"""What is kept of a measurement: every request's figures and the conditions, without any text.

Everything the gate concludes follows from a report alone, so a stored one can be judged again.
Knows figures; knows nothing of limits.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evaluation.client import Answer
from evaluation.parity import Parity, compare
from evaluation.rouge import rouge_l_metric
from evaluation.samples import Conditions, Measurement, Sample, prompt_digest
from speculation.records import Counts

FORMAT = "paceline report 1"


class ReportError(ValueError):
    """A file that is no report of ours, or one that was changed since it was written."""


@dataclass(frozen=True, slots=True)
class PromptFacts:
    """A prompt, without what it says."""

    id: str
    digest: str  # sha256 of its content
    task: str
    language: str


@dataclass(frozen=True, slots=True)
class RequestFigures:
    """One measured request."""

    run: str  # "batched", "again" or "alone", as in samples.py
    arm: str
    prompt: str  # its id
    block: int
    outcome: str
    counts: Counts
    prompt_tokens: int
    prompt_tokens_cached: int
    completion_tokens: int
    seconds: float
    queue_seconds: float
    prefill_seconds: float
    decode_seconds: float
    parity: Parity | None  # against plain decoding's batched answer to the same prompt
    rouge_l_reference: float | None  # against the prompt's reference, where it has one

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> RequestFigures:
        parity = stored["parity"]
        return cls(
            **{
                **stored,
                "counts": Counts.from_json(stored["counts"]),
                "parity": None if parity is None else Parity.from_json(parity),
            }
        )


@dataclass(frozen=True, slots=True)
class Report:
    """All arms measured in one run."""

    conditions: Conditions
    tokenizer: str  # of ROUGE-L
    prompts: tuple[PromptFacts, ...]
    requests: tuple[RequestFigures, ...]

    @property
    def arms(self) -> tuple[str, ...]:
        return tuple(self.conditions.pairs)

    def of(self, arm: str, run: str = "batched") -> tuple[RequestFigures, ...]:
        """The requests of one arm in one kind of run, in the order of the prompts."""
        return tuple(r for r in self.requests if r.arm == arm and r.run == run)

    def as_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Report:
        """Raises ReportError for anything that is no report."""
        if stored.get("format") != FORMAT:
            raise ReportError(f"got format = {stored.get('format')!r}, wanted {FORMAT!r}")
        try:
            return cls(
                Conditions(**stored["conditions"]),
                stored["tokenizer"],
                tuple(PromptFacts(**prompt) for prompt in stored["prompts"]),
                tuple(RequestFigures.from_json(request) for request in stored["requests"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ReportError(f"not a report: {type(error).__name__} {error}") from error

    @property
    def digest(self) -> str:
        """sha256 of the report's content, however the file is laid out."""
        return hashlib.sha256(_canonical(self.as_json())).hexdigest()

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


def report_of(measurement: Measurement, *, tokenizer: str = "words") -> Report:
    """Compare the texts, keep the figures."""
    samples = measurement.samples
    prompts = {prompt.id: prompt for prompt in measurement.prompts}
    plain = {s.prompt: s.answer for s in samples if (s.run, s.arm) == ("batched", "none")}
    references = {p.id: p.reference for p in measurement.prompts if p.reference is not None}
    parity_of = [s for s in samples if _compared(s)]
    with_reference = [s for s in samples if s.prompt in references]
    texts: list[tuple[str, str]] = [
        *((s.answer.text, plain[s.prompt].text) for s in parity_of),
        *((s.answer.text, references[s.prompt]) for s in with_reference),
    ]
    scored = _scored(texts, tokenizer=tokenizer)
    parity = {
        id(s): compare(s.answer, plain[s.prompt], rouge_l=score)
        for s, score in zip(parity_of, scored, strict=False)
    }
    against_reference = {
        id(s): score for s, score in zip(with_reference, scored[len(parity_of) :], strict=True)
    }
    return Report(
        measurement.conditions,
        tokenizer,
        tuple(PromptFacts(p.id, prompt_digest(p), p.task, p.language) for p in prompts.values()),
        tuple(_figures(s, parity.get(id(s)), against_reference.get(id(s))) for s in samples),
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


def _compared(sample: Sample) -> bool:
    """Every batched answer of a draft; and plain's others, the baseline that they are held to."""
    return (sample.run == "batched") != (sample.arm == "none")


def _figures(sample: Sample, parity: Parity | None, reference: float | None) -> RequestFigures:
    answer: Answer = sample.answer
    return RequestFigures(
        sample.run,
        sample.arm,
        sample.prompt,
        sample.block,
        answer.outcome,
        answer.counts,
        answer.prompt_tokens,
        answer.prompt_tokens_cached,
        answer.completion_tokens,
        answer.seconds,
        answer.queue_seconds,
        answer.prefill_seconds,
        answer.decode_seconds,
        parity,
        reference,
    )


def slices(report: Report) -> dict[str, frozenset[str]]:
    """Named sets of prompt ids: by task and by language, where there is more than one."""
    found: dict[str, frozenset[str]] = {}
    for kind in ("task", "language"):
        sizes = Counter(getattr(prompt, kind) for prompt in report.prompts)
        if len(sizes) > 1:
            for value in sizes:
                found[f"{kind} {value}"] = frozenset(
                    prompt.id for prompt in report.prompts if getattr(prompt, kind) == value
                )
    return found


def _canonical(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
