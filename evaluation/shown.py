"""What a page about a report says, as plain text in order; page.py and markdown.py give it a form.

Knows verdicts, summaries and words. Knows nothing of HTML or Markdown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from evaluation.report import Report
from evaluation.summary import ArmSummary, summarise
from evaluation.telling import next_steps, sentence
from speculation.records import Finding, Interval, Phase, Verdict

UNKNOWN = "–"


@dataclass(frozen=True, slots=True)
class Table:
    """Cells are text; those of columns from `figures` on are numbers."""

    heading: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    figures: int = 1
    note: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the gate as a page shows it."""

    name: str
    phase: Phase
    statement: str
    estimate: str
    interval: str
    limit: str
    finding: Finding


@dataclass(frozen=True, slots=True)
class Shown:
    """A whole page."""

    phase: Phase
    sentence: str
    steps: tuple[str, ...]
    rules: tuple[Rule, ...]
    tables: tuple[Table, ...]
    conditions: Table


def shown(report: Report, verdict: Verdict) -> Shown:
    """Everything that a page says, the verdict first, then what decided it."""
    arms = [summarise(report, arm) for arm in report.arms]
    tables = (_arms(arms), _speeds(arms), _texts(arms))
    return Shown(
        verdict.phase,
        sentence(verdict),
        next_steps(verdict),
        tuple(map(_rule, _ordered(verdict))),
        tuple(table for table in tables if table.rows),
        _conditions(report, verdict),
    )


def _ordered(verdict: Verdict) -> Sequence[Finding]:
    """What decided first, the rest as it was judged."""
    return sorted(verdict.findings, key=lambda f: f.excused or f.phase is not verdict.phase)


def _rule(finding: Finding) -> Rule:
    known = finding.interval
    return Rule(
        finding.rule.replace("_", " "),
        finding.phase,
        finding.statement,
        UNKNOWN if known is None else f"{known.estimate:.3f}",
        UNKNOWN if known is None else f"{known.low:.3f} to {known.high:.3f}",
        UNKNOWN if finding.threshold is None else f"{finding.threshold:g}",
        finding,
    )


def _arms(arms: Sequence[ArmSummary]) -> Table:
    return Table(
        "Acceptance",
        (
            *("arm", "requests", "failed", "acceptance", "acceptance rate", "tokens a round"),
            *("forwards a request", "correlation"),
        ),
        tuple(
            (
                told.arm,
                str(told.requests),
                str(told.errors),
                _interval(told.acceptance, 3),
                _interval(told.acceptance_rate, 3),
                _interval(told.acceptance_length, 2),
                _interval(told.forwards_per_request, 1),
                _value(told.correlation, 3),
            )
            for told in arms
        ),
        note="Acceptance: tokens kept over tokens judged. Intervals hold the truth nine times in "
        "ten; their unit is the prompt. Correlation: how alike the tokens of one prompt are.",
    )


def _speeds(arms: Sequence[ArmSummary]) -> Table:
    rows = []
    for told in arms:
        for speed in told.speeds:
            guess = speed.prediction
            rows.append(
                (
                    told.arm,
                    str(speed.concurrency),
                    _value(speed.tokens_per_second, 1),
                    _interval(speed.speedup, 2),
                    UNKNOWN if guess is None else f"{guess.end_to_end_speedup:.2f}",
                    _value(speed.prefill_share, 2),
                    _seconds(speed.first_token, "p50"),
                    _seconds(speed.latency, "p50"),
                    _seconds(speed.latency, "p95"),
                )
            )
    return Table(
        "Speed, whole requests",
        (
            *("arm", "at once", "tokens a second", "times plain", "predicted"),
            *("prefill share", "first token, s", "half within, s", "95 % within, s"),
        ),
        tuple(rows),
        note="Times plain is end to end, prefill included; predicted is what acceptance, costs and "
        "the share of prefill say it should be (Amdahl). The unit of intervals is the block.",
    )


def _texts(arms: Sequence[ArmSummary]) -> Table:
    return Table(
        "Texts",
        ("arm", "equal to plain's", "ROUGE-L to plain", "ROUGE-L to references", "less plain's"),
        tuple(
            (
                told.arm,
                _value(told.exact_match, 3),
                _value(told.rouge_l, 3),
                _value(told.rouge_l_reference, 3),
                _interval(told.rouge_l_difference, 3, sign="+"),
            )
            for told in arms
        ),
        note="Plain is decoding without a draft on the same server.",
    )


def _conditions(report: Report, verdict: Verdict) -> Table:
    told: dict[str, Any] = {
        **{name.replace("_", " "): value for name, value in asdict(report.conditions).items()},
        "ROUGE-L tokenizer": report.tokenizer,
        "report digest": report.digest,
        "context judged, tokens": verdict.context_measured,
    }
    if verdict.basis is not None:
        told |= {"policy digest": verdict.basis.policy, "judged by": verdict.basis.code_version}
        told |= {f"policy: {name}": value for name, value in verdict.basis.limits.items()}
    rows = tuple((name, _plain(value)) for name, value in told.items())
    return Table("To measure and judge it again", ("condition", "value"), rows, figures=2)


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_plain(inner)}" for name, inner in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    return UNKNOWN if value is None else str(value)


def _seconds(quantiles: dict[str, Any], name: str) -> str:
    return f"{quantiles[name].seconds:.3f}" if name in quantiles else UNKNOWN


def _value(value: float | None, digits: int) -> str:
    return UNKNOWN if value is None else f"{value:.{digits}f}"


def _interval(interval: Interval | None, digits: int, *, sign: str = "") -> str:
    """Two lines: the estimate, and its bounds."""
    if interval is None:
        return UNKNOWN
    low, high = (f"{bound:{sign}.{digits}f}" for bound in (interval.low, interval.high))
    return f"{interval.estimate:{sign}.{digits}f}\n{low} to {high}"
