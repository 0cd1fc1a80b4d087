"""The speed of an arm at one concurrency beside plain decoding's: throughput, latency, first token.

The unit is the block. Throughput is tokens of a block over its wall time, so that it is right for
several requests at once; latencies are of single requests. Intervals of quantiles resample blocks,
of both arms together. Knows reports; knows nothing of limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evaluation.prediction import Prediction, predict, prefill_share
from evaluation.report import Report, RequestFigures
from evaluation.samples import SPEED
from evaluation.statistics import quantile_ratio, ratio_of_ratios
from speculation.records import Interval

PLAIN = "none"
ALPHA = 0.05
TAIL_REQUESTS = 1_000  # p99 of fewer is set by fewer than ten requests

Floats = np.ndarray[Any, np.dtype[np.float64]]
Place = tuple[float, int, int]  # temperature, concurrency, block


@dataclass(frozen=True, slots=True)
class Quantile:
    """One quantile of a time, with and without the draft. Seconds."""

    seconds: float
    plain_seconds: float | None
    ratio: Interval | None  # over plain decoding's, paired by block; below 1 is faster


@dataclass(frozen=True, slots=True)
class SpeedFigures:
    """One arm at one concurrency, at every temperature together. None where not measured."""

    arm: str
    concurrency: int
    requests: int
    blocks: int
    tokens_per_second: float | None  # of the whole server: all requests at once
    plain_tokens_per_second: float | None
    speedup: Interval | None  # of tokens a second, by block
    latency: dict[str, Quantile]  # p50, p95, and p99 above 1,000 requests
    first_token: dict[str, Quantile]  # the same, from sending to the first token
    decode_speedup: Interval | None  # from the first token on, as the server timed it, by block
    prefill_share: float | None  # of plain decoding's time on the server
    prediction: Prediction | None  # what acceptance and costs say that the speed-up should be


def speed_figures(
    report: Report, arm: str, concurrency: int, *, alpha: float = ALPHA
) -> SpeedFigures | None:
    """The speed of `arm`, or None where it was not measured at this concurrency."""
    ours, plain = (report.of(a, SPEED, concurrency=concurrency) for a in (arm, PLAIN))
    if not ours:
        return None
    table, other = (block_table(report, a, concurrency) for a in (arm, PLAIN))
    paired = table.shape == other.shape
    return SpeedFigures(
        arm,
        concurrency,
        len(ours),
        len(table),
        _rate(table),
        _rate(other),
        ratio_of_ratios(*table[:, :2].T, *other[:, :2].T, alpha=alpha) if paired else None,
        _quantiles(ours, plain, "seconds", alpha=alpha),
        _quantiles(ours, plain, "first_token_seconds", alpha=alpha),
        ratio_of_ratios(*table[:, 2:4].T, *other[:, 2:4].T, alpha=alpha) if paired else None,
        prefill_share(plain) if plain else None,
        predict(report, arm, concurrency),
    )


def block_table(
    report: Report, arm: str, concurrency: int = 1, *, temperature: float | None = None
) -> Floats:
    """[blocks, 5]: tokens, wall seconds, tokens after the first, decode and prefill seconds."""
    rows: dict[Place, list[float]] = {
        (block.temperature, block.concurrency, block.block): [0.0, block.seconds, 0.0, 0.0, 0.0]
        for block in report.blocks
        if block.arm == arm
        and block.concurrency == concurrency
        and temperature in (None, block.temperature)
    }
    for request in report.of(arm, SPEED, concurrency=concurrency, temperature=temperature):
        row = rows.get(_place(request))
        if row is not None:
            row[0] += request.completion_tokens
            row[2] += max(0, request.completion_tokens - 1)
            row[3] += request.decode_seconds
            row[4] += request.prefill_seconds
    ordered = [rows[place] for place in sorted(rows)]
    return np.asarray(ordered, dtype=np.float64).reshape(-1, 5)


def _place(request: RequestFigures) -> Place:
    return request.temperature, request.concurrency, request.block


def _rate(table: Floats) -> float | None:
    seconds = float(table[:, 1].sum())
    return float(table[:, 0].sum()) / seconds if seconds > 0 else None


def _quantiles(
    ours: Sequence[RequestFigures], plain: Sequence[RequestFigures], of: str, *, alpha: float
) -> dict[str, Quantile]:
    shares = {"p50": 0.50, "p95": 0.95}
    if min(len(ours), len(plain)) > TAIL_REQUESTS:
        shares["p99"] = 0.99
    first, second = _by_block(ours, of), _by_block(plain, of)
    if not first:
        return {}
    everything = np.concatenate(list(first.values()))
    beside = np.concatenate(list(second.values())) if second else None
    return {
        name: Quantile(
            float(np.quantile(everything, share)),
            None if beside is None else float(np.quantile(beside, share)),
            _paired(first, second, share, alpha),
        )
        for name, share in shares.items()
    }


def _by_block(requests: Sequence[RequestFigures], of: str) -> dict[Place, Floats]:
    found: dict[Place, list[float]] = {}
    for request in requests:
        if (value := getattr(request, of)) is not None:
            found.setdefault(_place(request), []).append(value)
    return {place: np.asarray(values) for place, values in found.items()}


def _paired(
    ours: dict[Place, Floats], plain: dict[Place, Floats], share: float, alpha: float
) -> Interval | None:
    places = sorted(ours)
    if places != sorted(plain):
        return None
    first, second = [ours[place] for place in places], [plain[place] for place in places]
    return quantile_ratio(first, second, quantile=share, alpha=alpha)
