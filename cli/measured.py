"""How a report's figures are shown on a terminal, and told to programs.

Two tables, of acceptance and texts and of speed, and a line for what no column holds. Knows the
report's summaries; measures and judges nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cli.output import figure, table

if TYPE_CHECKING:
    from evaluation.report import Report
    from evaluation.speed import SpeedFigures
    from evaluation.summary import ArmSummary
    from evaluation.texts import TextFigures
    from speculation.records import Interval

ACCEPTANCE = (
    ("acceptance", "alpha_hat", 3),
    ("of drafted", "acceptance_rate", 3),
    ("tokens a round", "acceptance_length", 2),
    ("forwards/request", "forwards_per_request", 1),
    ("correlation", "correlation", 2),
    ("ROUGE-L", "rouge_l", 3),
    ("plain to itself", "rouge_l_baseline", 3),
    ("same text", "exact_match", 3),
    ("to references", "rouge_l_reference", 3),
    ("requests", "requests", 0),
    ("failed", "errors", 0),
)
SPEED = (
    ("at once", "concurrency", 0),
    ("tokens/s", "tokens_per_second", 1),
    ("plain", "plain_tokens_per_second", 1),
    ("speed-up", "speedup", 2),
    ("from", "speedup_low", 2),
    ("to", "speedup_high", 2),
    ("first token s", "first_token_p50_seconds", 3),
    ("plain", "first_token_p50_plain_seconds", 3),
    ("p50 s", "latency_p50_seconds", 2),
    ("plain", "latency_p50_plain_seconds", 2),
    ("p95 s", "latency_p95_seconds", 2),
    ("plain", "latency_p95_plain_seconds", 2),
    ("p99 s", "latency_p99_seconds", 2),
    ("plain", "latency_p99_plain_seconds", 2),
)


def figures(report: Report) -> dict[str, Any]:
    """For programs: the tables, and every figure with its interval."""
    from evaluation.summary import rows, speed_rows, summarise

    return {
        "digest": report.digest,
        "incomplete": report.incomplete,
        "rows": rows(report),
        "speeds": speed_rows(report),
        "arms": [summarise(report, arm) for arm in report.arms],
    }


def figure_lines(told: Mapping[str, Any]) -> list[str]:
    """The same for people."""
    arms: Sequence[ArmSummary] = told["arms"]
    said = _table(told["rows"], ACCEPTANCE)
    if told["speeds"]:
        said += ["", *_table(told["speeds"], SPEED)]
    said += [""] + [line for arm in arms for line in _of_arm(arm)]
    return said


def _of_arm(arm: ArmSummary) -> list[str]:
    """What of one arm no column holds. Intervals hold the truth nine times in ten."""
    said = []
    if any(arm.hazards):
        by_position = ", ".join("-" if h is None else _share(h, digits=2) for h in arm.hazards)
        said.append(f"{arm.arm}: acceptance {_share(arm.acceptance)}; by position {by_position}")
    said += map(_texts, arm.texts)
    if arm.rouge_l_difference is not None:
        difference = _interval(arm.rouge_l_difference, sign=True)
        said.append(f"{arm.arm}: ROUGE-L to references less plain decoding's {difference}")
    return said + [line for speed in arm.speeds if (line := _predicted(speed)) is not None]


def _texts(texts: TextFigures) -> str:
    """ROUGE-L beside its baseline, and where the answers part from plain decoding's."""
    said = (
        f"{texts.arm}, temperature {texts.temperature:g}: {texts.equal} of {texts.answers} answers "
        f"are plain decoding's, ROUGE-L to them {_share(texts.rouge_l)}, of plain decoding to "
        f"itself {_share(texts.rouge_l_baseline)}"
    )
    if texts.first_divergence is not None and texts.median_divergence is not None:
        said += (
            f"; the others part at token {texts.first_divergence} at the earliest, "
            f"{texts.median_divergence:.0f} in the median"
        )
    if texts.widest_gap is not None:
        said += f", where plain preferred its own by {texts.widest_gap:.2f} nats at most"
    if texts.unranked:
        said += f"; {texts.unranked} by a token that was none of plain's likeliest"
    return said


def _predicted(speed: SpeedFigures) -> str | None:
    guess = speed.prediction
    if guess is None or speed.speedup is None:
        return None
    return (
        f"{speed.arm}, {speed.concurrency} at once: decoding should be "
        f"{guess.decode_speedup:.2f} times plain's by acceptance and costs, and was "
        f"{guess.measured_decode_speedup:.2f}; with prefill {guess.prefill_share:.2f} of plain's "
        f"time that makes {guess.end_to_end_speedup:.2f} of whole requests, and it was "
        f"{speed.speedup.estimate:.2f}"
    )


def _share(interval: Interval | None, *, digits: int = 3) -> str:
    from evaluation.limits import possible

    return _interval(possible(interval), digits=digits)


def _interval(interval: Interval | None, *, sign: bool = False, digits: int = 3) -> str:
    if interval is None:
        return "unknown"
    form = f"{'+' if sign else ''}.{digits}f"
    return f"{interval.estimate:{form}} ({interval.low:{form}} to {interval.high:{form}})"


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[tuple[str, str, int]]) -> list[str]:
    """A line a row; a column of which nothing is known is left out."""
    shown = [c for c in columns if any(row.get(c[1]) is not None for row in rows)]
    heading = ["", *(title for title, _, _ in shown)]
    cells = [
        [str(row["arm"]), *(figure(row.get(key), digits) for _, key, digits in shown)]
        for row in rows
    ]
    return table([heading, *cells])
