"""The case that the idea was told by: seconds a request and ROUGE-L, without a draft and with it.

"A summarising service went from 1.8 s to 0.9 s a request, with ROUGE-L 0.002 lower." Said here with
what it rests on: whole requests as a client waits for them, one at a time, paired by block; texts
against references of their own, paired by prompt. Knows reports; knows nothing of limits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from evaluation.report import Report
from evaluation.samples import SPEED
from evaluation.statistics import mean_difference, ratio_of_ratios
from speculation.records import Interval

PLAIN = "none"
ALPHA = 0.05  # one-sided: a shown interval holds the truth 90 % of the time


@dataclass(frozen=True, slots=True)
class BeforeAfter:
    """One draft against none. None where it was not measured."""

    arm: str
    timed: int  # requests of each arm
    plain_seconds: float | None  # a request, on average
    seconds: float | None
    times: Interval | None  # seconds over plain's: 0.5 is twice as fast
    prefill_share: float | None  # of plain's seconds, which no draft shortens
    compared: int  # prompts with a reference
    plain_rouge_l: float | None  # against the references
    rouge_l: float | None
    rouge_l_difference: Interval | None
    same_text: float | None  # share of answers that are plain decoding's, token by token

    @property
    def sentence(self) -> str:
        """As it would be told, with its intervals."""
        if self.seconds is None or self.plain_seconds is None or self.times is None:
            return f"{self.arm}: too few requests were timed to tell"
        told = (
            f"{self.arm}: from {self.plain_seconds:.2f} s to {self.seconds:.2f} s a request "
            f"({_of(self.times, '.2f')} times as long)"
        )
        if self.rouge_l is None or self.plain_rouge_l is None:
            return f"{told}; there was no reference to compare the text with"
        difference = self.rouge_l_difference
        return (
            f"{told}, ROUGE-L from {self.plain_rouge_l:.3f} to {self.rouge_l:.3f} "
            f"({'unknown spread' if difference is None else _of(difference, '+.3f')})"
        )


def before_after(report: Report, arm: str, *, alpha: float = ALPHA) -> BeforeAfter:
    """What `arm` changes for whoever waits for an answer and reads it."""
    ours, plain = _seconds(report, arm), _seconds(report, PLAIN)
    paired = sorted(ours.keys() & plain.keys())
    first, second = ([side[block] for block in paired] for side in (ours, plain))
    sums, others = [np.array([sum(b) for b in side]) for side in (first, second)]
    counts, other_counts = [np.array([len(b) for b in side]) for side in (first, second)]
    scores, plain_scores = _scores(report, arm), _scores(report, PLAIN)
    both = sorted(scores.keys() & plain_scores.keys())
    parities = [r.parity.equal for r in report.of(arm) if r.parity is not None]
    prefill = sum(r.prefill_seconds for r in report.of(PLAIN, SPEED, concurrency=1))
    return BeforeAfter(
        arm,
        int(counts.sum()),
        float(others.sum() / other_counts.sum()) if paired else None,
        float(sums.sum() / counts.sum()) if paired else None,
        ratio_of_ratios(sums, counts, others, other_counts, alpha=alpha),
        float(prefill / others.sum()) if paired and len(paired) == len(plain) else None,
        len(both),
        _mean([plain_scores[prompt] for prompt in both]),
        _mean([scores[prompt] for prompt in both]),
        mean_difference(
            [scores[prompt] for prompt in both],
            [plain_scores[prompt] for prompt in both],
            alpha=alpha,
        ),
        _mean([float(equal) for equal in parities]),
    )


def _seconds(report: Report, arm: str) -> dict[tuple[float, int], list[float]]:
    """By temperature and block, of the runs of one request at a time."""
    found: dict[tuple[float, int], list[float]] = {}
    for request in report.of(arm, SPEED, concurrency=1):
        found.setdefault((request.temperature, request.block), []).append(request.seconds)
    return found


def _scores(report: Report, arm: str) -> dict[tuple[str, float], float]:
    return {
        (r.prompt, r.temperature): r.rouge_l_reference
        for r in report.of(arm)
        if r.rouge_l_reference is not None and math.isfinite(r.rouge_l_reference)
    }


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _of(interval: Interval, form: str) -> str:
    estimate, low, high = interval.estimate, interval.low, interval.high
    return f"{estimate:{form}}, {low:{form}} to {high:{form}}"
