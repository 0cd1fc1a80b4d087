"""What a report says of one arm, in figures with intervals, and the table that people see.

Knows which columns make which figure. Knows nothing of limits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from evaluation.report import Report, RequestFigures
from evaluation.speed import SpeedFigures, speed_figures
from evaluation.statistics import clustered, correlation, mean_difference, ratio
from evaluation.texts import TextFigures, plain_again, prompt_scores, text_figures
from speculation.records import Counts, Interval, pool

PLAIN = "none"
ALPHA = 0.05  # one-sided: a shown interval holds the truth 90 % of the time


@dataclass(frozen=True, slots=True)
class ArmSummary:
    """One arm. None where nothing was measured. Intervals are by prompt (two temperatures of one
    prompt are one cluster), of speed by block."""

    arm: str
    pair: str
    requests: int  # of the acceptance runs
    errors: int  # requests that failed and were made again
    acceptance: Interval | None  # alpha-hat: accepted over judged
    hazards: tuple[Interval | None, ...]  # the same at each draft position
    acceptance_rate: Interval | None  # accepted over drafted
    acceptance_length: Interval | None  # tokens a round yields
    forwards_per_request: Interval | None
    correlation: float | None  # how alike the tokens of one prompt are
    tokens_per_second: float | None  # whole requests, one at a time
    plain_tokens_per_second: float | None  # of the same prompts
    speedup: Interval | None  # whole requests
    decode_speedup: Interval | None  # from the first token on, as the server timed it
    prefill_share: float | None  # of plain decoding's seconds
    speeds: tuple[SpeedFigures, ...]  # at every concurrency; the five above are of the lowest one
    texts: tuple[TextFigures, ...]  # at every temperature, with intervals; none of plain decoding
    rouge_l: float | None  # against plain decoding's text, over all temperatures
    rouge_l_baseline: float | None  # of plain decoding against itself, over the same
    rouge_l_reference: float | None
    rouge_l_difference: Interval | None  # against references, less plain decoding's, by prompt
    exact_match: float | None  # share of answers that equal plain decoding's


def summarise(report: Report, arm: str, *, alpha: float = ALPHA) -> ArmSummary:
    """The figures of one arm. Raises ValueError for an arm that the report does not have."""
    if arm not in report.arms:
        raise ValueError(f"arm {arm!r}: the report has {', '.join(report.arms)}")
    requests = report.of(arm)
    counts = by_prompt(requests)
    accepted, judged = [c.accepted for c in counts], [c.judged for c in counts]
    rounds = [c.rounds for c in counts]
    asked = list(Counter(request.prompt for request in requests).values())
    speeds = tuple(
        figures
        for concurrency in sorted(report.conditions.speed_concurrencies)
        if (figures := speed_figures(report, arm, concurrency, alpha=alpha)) is not None
    )
    first = speeds[0] if speeds else None
    references = [r.rouge_l_reference for r in requests if r.rouge_l_reference is not None]
    texts = tuple(
        told
        for temperature in report.conditions.temperatures
        if (told := text_figures(report, arm, temperature, alpha=alpha)) is not None
    )
    compared = sum(t.answers for t in texts)
    return ArmSummary(
        arm=arm,
        pair=report.conditions.pairs[arm],
        requests=len(requests),
        errors=report.errors.get(arm, 0),
        acceptance=ratio(accepted, judged, alpha=alpha),
        hazards=hazards(counts, alpha=alpha),
        acceptance_rate=ratio(accepted, [c.drafted for c in counts], alpha=alpha),
        acceptance_length=clustered([accepted, rounds], lambda a, r: 1 + a / r, alpha=alpha),
        forwards_per_request=ratio([c.forwards for c in counts], asked, alpha=alpha),
        correlation=correlation(accepted, judged),
        tokens_per_second=None if first is None else first.tokens_per_second,
        plain_tokens_per_second=None if first is None else first.plain_tokens_per_second,
        speedup=None if first is None else first.speedup,
        decode_speedup=None if first is None else first.decode_speedup,
        prefill_share=None if first is None else first.prefill_share,
        speeds=speeds,
        texts=texts,
        rouge_l=_of_temperatures(report.of(arm, temperature=t.temperature) for t in texts),
        rouge_l_baseline=_of_temperatures(plain_again(report, t.temperature) for t in texts),
        rouge_l_reference=_mean(references),
        rouge_l_difference=None
        if arm == PLAIN  # it is its own measure
        else reference_difference(report, arm, alpha=alpha),
        exact_match=sum(t.equal for t in texts) / compared if compared else None,
    )


def by_prompt(requests: Sequence[RequestFigures]) -> list[Counts]:
    """Each prompt's counts, at all temperatures together: the clusters."""
    found: dict[str, list[Counts]] = {}
    for request in requests:
        found.setdefault(request.prompt, []).append(request.counts)
    return [pool(counts) for counts in found.values()]


def reference_difference(report: Report, arm: str, *, alpha: float) -> Interval | None:
    """ROUGE-L of an arm's answers against the references less that of plain decoding's, paired by
    prompt; None where no prompt has a reference."""
    scores = []
    for name in (arm, PLAIN):
        found: dict[str, list[float]] = {}
        for request in report.of(name):
            if request.rouge_l_reference is not None:
                found.setdefault(request.prompt, []).append(request.rouge_l_reference)
        scores.append({prompt: sum(each) / len(each) for prompt, each in found.items()})
    ours, plain = scores
    both = [prompt for prompt in ours if prompt in plain]
    # Differences, since a draft that never changes the text has one and the same at every prompt.
    return mean_difference([ours[p] - plain[p] for p in both], [0.0] * len(both), alpha=alpha)


def hazards(counts: Sequence[Counts], *, alpha: float) -> tuple[Interval | None, ...]:
    """Accepted over judged at each draft position; `counts` of one cluster each."""
    kept = _by_position(each.accepted_per_position for each in counts)
    seen = _by_position(each.judged_per_position for each in counts)
    return tuple(ratio(a, j, alpha=alpha) for a, j in zip(kept, seen, strict=True))


def rows(report: Report) -> list[dict[str, Any]]:
    """The table: one row per arm, plain values, None where nothing was measured."""
    table = []
    for arm in report.arms:
        told = summarise(report, arm)
        counts = pool([r.counts for r in report.of(arm)])
        table.append(
            {
                "arm": arm,
                "pair": told.pair,
                "alpha_hat": _estimate(told.acceptance),
                "acceptance_rate": _estimate(told.acceptance_rate),
                "acceptance_length": _estimate(told.acceptance_length),
                "forwards_per_request": _estimate(told.forwards_per_request),
                "correlation": told.correlation,
                "tokens_per_second": told.tokens_per_second,
                "plain_tokens_per_second": told.plain_tokens_per_second,
                "speedup": _estimate(told.speedup),
                "decode_speedup": _estimate(told.decode_speedup),
                "prefill_share": told.prefill_share,
                "rouge_l": told.rouge_l,
                "rouge_l_baseline": told.rouge_l_baseline,
                "rouge_l_reference": told.rouge_l_reference,
                "rouge_l_difference": _estimate(told.rouge_l_difference),
                "exact_match": told.exact_match,
                "requests": told.requests,
                "errors": told.errors,
                "accepted": counts.accepted,
                "judged": counts.judged,
            }
        )
    return table


def speed_rows(report: Report) -> list[dict[str, Any]]:
    """The table of speed: one row per arm and concurrency, plain values. Seconds."""
    table = []
    for arm in report.arms:
        for told in summarise(report, arm).speeds:
            row: dict[str, Any] = {
                "arm": arm,
                "concurrency": told.concurrency,
                "tokens_per_second": told.tokens_per_second,
                "plain_tokens_per_second": told.plain_tokens_per_second,
                "speedup": _estimate(told.speedup),
                "speedup_low": None if told.speedup is None else told.speedup.low,
                "speedup_high": None if told.speedup is None else told.speedup.high,
                "decode_speedup": _estimate(told.decode_speedup),
                "prefill_share": told.prefill_share,
            }
            for what, quantiles in (("latency", told.latency), ("first_token", told.first_token)):
                for name, quantile in quantiles.items():
                    row[f"{what}_{name}_seconds"] = quantile.seconds
                    row[f"{what}_{name}_plain_seconds"] = quantile.plain_seconds
                    row[f"{what}_{name}_ratio"] = _estimate(quantile.ratio)
            guess = told.prediction
            row["predicted_decode_speedup"] = None if guess is None else guess.decode_speedup
            row["held_out_decode_speedup"] = (
                None if guess is None else guess.measured_decode_speedup
            )
            row["predicted_speedup"] = None if guess is None else guess.end_to_end_speedup
            table.append(row)
    return table


def _by_position(columns: Iterable[Sequence[int]]) -> list[list[int]]:
    """[positions][requests], zeros where a request never got that far."""
    ragged = list(columns)
    width = max(map(len, ragged), default=0)
    return [[row[place] if place < len(row) else 0 for row in ragged] for place in range(width)]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _of_temperatures(asked: Iterable[Sequence[RequestFigures]]) -> float | None:
    """The mean ROUGE-L to plain decoding's text. Each temperature weighs the same, as plain
    decoding was not asked the same number of prompts at each; None where it is unknown at one."""
    means = [_mean(prompt_scores(requests)) for requests in asked]
    known = [mean for mean in means if mean is not None]
    return _mean(known) if len(known) == len(means) else None


def _estimate(interval: Interval | None) -> float | None:
    return None if interval is None else interval.estimate
