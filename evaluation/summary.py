"""What a report says of one arm, in figures with intervals, and the table that people see.

Knows which columns make which figure. Knows nothing of limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evaluation.report import Report, RequestFigures
from evaluation.speed import block_table
from evaluation.statistics import clustered, correlation, ratio, ratio_of_ratios
from speculation.records import Interval, pool

ALPHA = 0.05  # one-sided: a shown interval holds the truth 90 % of the time


@dataclass(frozen=True, slots=True)
class ArmSummary:
    """One arm. None where nothing was measured. Intervals are by request, of speed by block."""

    arm: str
    pair: str
    requests: int
    acceptance: Interval | None  # alpha-hat: accepted over judged
    hazards: tuple[Interval | None, ...]  # the same at each draft position
    acceptance_rate: Interval | None  # accepted over drafted
    acceptance_length: Interval | None  # tokens a round yields
    forwards_per_request: Interval | None
    correlation: float | None  # how alike the tokens of one request are
    tokens_per_second: float | None  # whole requests, one at a time
    plain_tokens_per_second: float | None  # of the same prompts
    speedup: Interval | None  # whole requests
    decode_speedup: Interval | None  # from the first token on, as the server timed it
    prefill_share: float | None  # of plain decoding's seconds
    rouge_l: float | None  # against plain decoding's text
    rouge_l_reference: float | None
    exact_match: float | None  # share of answers that equal plain decoding's


def summarise(report: Report, arm: str, *, alpha: float = ALPHA) -> ArmSummary:
    """The figures of one arm. Raises ValueError for an arm that the report does not have."""
    if arm not in report.arms:
        raise ValueError(f"arm {arm!r}: the report has {', '.join(report.arms)}")
    requests = report.of(arm)
    counts = [request.counts for request in requests]
    accepted, judged = [c.accepted for c in counts], [c.judged for c in counts]
    rounds = [c.rounds for c in counts]
    alone, plain = block_table(report, arm), block_table(report, "none")
    paired = bool(len(alone)) and len(alone) == len(plain)
    references = [r.rouge_l_reference for r in requests if r.rouge_l_reference is not None]
    parities = [request.parity for request in requests if request.parity is not None]
    same = arm == "none"  # plain decoding is its own measure
    return ArmSummary(
        arm=arm,
        pair=report.conditions.pairs[arm],
        requests=len(requests),
        acceptance=ratio(accepted, judged, alpha=alpha),
        hazards=hazards(requests, alpha=alpha),
        acceptance_rate=ratio(accepted, [c.drafted for c in counts], alpha=alpha),
        acceptance_length=clustered([accepted, rounds], lambda a, r: 1 + a / r, alpha=alpha),
        forwards_per_request=ratio([c.forwards for c in counts], [1] * len(counts), alpha=alpha),
        correlation=correlation(accepted, judged),
        tokens_per_second=_rate(alone),
        plain_tokens_per_second=_rate(plain) if paired else None,
        speedup=ratio_of_ratios(*alone[:, :2].T, *plain[:, :2].T, alpha=alpha) if paired else None,
        decode_speedup=ratio_of_ratios(*alone[:, 2:4].T, *plain[:, 2:4].T, alpha=alpha)
        if paired
        else None,
        prefill_share=float(plain[:, 4].sum() / plain[:, 1].sum()) if paired else None,
        rouge_l=1.0 if same and requests else _mean([p.rouge_l for p in parities]),
        rouge_l_reference=_mean(references),
        exact_match=1.0 if same and requests else _mean([float(p.equal) for p in parities]),
    )


def hazards(requests: Sequence[RequestFigures], *, alpha: float) -> tuple[Interval | None, ...]:
    """Accepted over judged at each draft position."""
    kept = _by_position(request.counts.accepted_per_position for request in requests)
    seen = _by_position(request.counts.judged_per_position for request in requests)
    return tuple(ratio(a, j, alpha=alpha) for a, j in zip(kept, seen, strict=True))


def rows(report: Report) -> list[dict[str, Any]]:
    """The table: one row per arm, plain values, None where nothing was measured."""
    table = []
    for arm in report.arms:
        told = summarise(report, arm)
        table.append(
            {
                "arm": arm,
                "pair": told.pair,
                "alpha_hat": _estimate(told.acceptance),
                "acceptance_length": _estimate(told.acceptance_length),
                "forwards_per_request": _estimate(told.forwards_per_request),
                "tokens_per_second": told.tokens_per_second,
                "plain_tokens_per_second": told.plain_tokens_per_second,
                "speedup": _estimate(told.speedup),
                "decode_speedup": _estimate(told.decode_speedup),
                "rouge_l": told.rouge_l,
                "rouge_l_reference": told.rouge_l_reference,
                "exact_match": told.exact_match,
                "requests": told.requests,
                "accepted": pool([r.counts for r in report.of(arm)]).accepted,
                "judged": pool([r.counts for r in report.of(arm)]).judged,
            }
        )
    return table


def _by_position(columns: Iterable[Sequence[int]]) -> list[list[int]]:
    """[positions][requests], zeros where a request never got that far."""
    ragged = list(columns)
    width = max(map(len, ragged), default=0)
    return [[row[place] if place < len(row) else 0 for row in ragged] for place in range(width)]


def _rate(table: np.ndarray[Any, np.dtype[np.float64]]) -> float | None:
    seconds = float(table[:, 1].sum())
    return float(table[:, 0].sum()) / seconds if seconds > 0 else None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _estimate(interval: Interval | None) -> float | None:
    return None if interval is None else interval.estimate
