"""An arm's texts beside plain decoding's at one temperature, and plain's own beside themselves.

Texts differ without any draft: where they are drawn, by the seed; where they are greedy, where
rounding decides. A score against plain decoding's text tells something only beside the score that
plain decoding has against itself. Knows reports; knows nothing of limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from evaluation.report import Report, RequestFigures
from evaluation.samples import AGAIN, SPEED
from evaluation.statistics import mean_difference
from speculation.records import Interval

PLAIN = "none"
ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class TextFigures:
    """One arm at one temperature. None where nothing was measured, or nothing differs."""

    arm: str
    temperature: float
    answers: int  # that were compared with plain decoding's
    equal: int
    rouge_l: Interval | None  # to plain decoding's text, by prompt
    rouge_l_baseline: Interval | None  # of plain decoding to itself, by prompt
    first_divergence: int | None  # tokens before the earliest difference
    median_divergence: float | None  # of the answers that differ
    widest_gap: float | None  # nats by which plain preferred its own token there, at most
    unranked: int  # answers that differ by a token which was none of plain's likeliest


def text_figures(
    report: Report, arm: str, temperature: float, *, alpha: float = ALPHA
) -> TextFigures | None:
    """The texts of `arm`, or None where none was compared with plain decoding's."""
    compared = [r for r in report.of(arm, temperature=temperature) if r.parity is not None]
    if not compared:
        return None
    differing = [r.parity for r in compared if r.parity is not None and not r.parity.equal]
    places = [parity.position for parity in differing if parity.position is not None]
    gaps = [parity.gap for parity in differing if parity.gap is not None]
    return TextFigures(
        arm,
        temperature,
        len(compared),
        len(compared) - len(differing),
        _mean(compared, alpha=alpha),
        _mean(plain_again(report, temperature), alpha=alpha),
        min(places, default=None),
        median(places) if places else None,
        max(gaps, default=None),
        sum(parity.position is not None and parity.gap is None for parity in differing),
    )


def plain_again(report: Report, temperature: float) -> Sequence[RequestFigures]:
    """Plain decoding's answers that are held against its own: with other seeds where it draws, one
    at a time against in a batch where it is greedy."""
    if temperature > 0:
        return report.of(PLAIN, AGAIN, temperature=temperature)
    return report.of(PLAIN, SPEED, concurrency=1, temperature=temperature)


def prompt_scores(requests: Sequence[RequestFigures]) -> list[float]:
    """ROUGE-L to plain decoding's text of each prompt; one that was asked twice counts once."""
    found: dict[str, list[float]] = {}
    for request in requests:
        if request.parity is not None:
            found.setdefault(request.prompt, []).append(request.parity.rouge_l)
    return [sum(each) / len(each) for each in found.values()]


def _mean(requests: Sequence[RequestFigures], *, alpha: float) -> Interval | None:
    scores = prompt_scores(requests)
    return mean_difference(scores, [0.0] * len(scores), alpha=alpha)
