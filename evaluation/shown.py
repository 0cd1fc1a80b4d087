"""What a page about a report says, as plain text in order; page.py and markdown.py give it a form.

Knows verdicts, summaries and words. Knows nothing of HTML or Markdown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from evaluation.limits import possible
from evaluation.report import Report
from evaluation.rules_slices import RULE as SLICE
from evaluation.summary import ArmSummary, summarise
from evaluation.telling import mark, next_steps, sentence
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
    mark: str
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
    tables = (
        *(_arms(arms), _positions(arms), _speeds(arms), _decoding(arms), _texts(arms)),
        _divergences(arms),
    )
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
    of_slice = finding.rule.startswith(SLICE) and (finding.threshold or 0) > 0  # a share, that is
    if of_slice or finding.rule == "acceptance_floor":
        known = possible(known)
    return Rule(
        finding.rule.replace("_", " "),
        finding.phase,
        mark(finding),
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
                _interval(possible(told.acceptance), 3),
                _interval(possible(told.acceptance_rate), 3),
                _interval(told.acceptance_length, 2),
                _interval(told.forwards_per_request, 1),
                _value(told.correlation, 3),
            )
            for told in arms
        ),
        note="Acceptance: tokens kept over tokens judged. Intervals hold the truth nine times in "
        "ten; their unit is the prompt. Correlation: how alike the tokens of one prompt are.",
    )


def _positions(arms: Sequence[ArmSummary]) -> Table:
    drafting = [told for told in arms if any(told.hazards)]
    width = max((len(told.hazards) for told in drafting), default=0)
    return Table(
        "Acceptance by place in the draft",
        ("arm", *map(str, range(1, width + 1))),
        tuple(
            (
                told.arm,
                *(_interval(possible(hazard), 3) for hazard in told.hazards),
                *(UNKNOWN for _ in range(width - len(told.hazards))),
            )
            for told in drafting
        ),
        note="Of the tokens that were judged at a place, the share that the target kept.",
    )


def _speeds(arms: Sequence[ArmSummary]) -> Table:
    tail = any("p99" in speed.latency for told in arms for speed in told.speeds)
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
                    *((_seconds(speed.latency, "p99"),) if tail else ()),
                )
            )
    return Table(
        "Speed, whole requests",
        (
            *("arm", "at once", "tokens a second", "times plain", "predicted"),
            *("prefill share", "first token, s", "half within, s", "95 % within, s"),
            *(("99 % within, s",) if tail else ()),
        ),
        tuple(rows),
        note="Times plain is end to end, prefill included; predicted is what acceptance, costs and "
        "the share of prefill say it should be (Amdahl). The unit of intervals is the block.",
    )


def _decoding(arms: Sequence[ArmSummary]) -> Table:
    return Table(
        "Decoding alone, prefill aside",
        (
            "arm",
            "at once",
            "drafted a round",
            "cost of a round",
            "times plain, predicted",
            "held out",
        ),
        tuple(
            (
                told.arm,
                str(speed.concurrency),
                f"{guess.draft_len:.1f}",
                f"{guess.round_cost:.2f}",
                f"{guess.decode_speedup:.2f}",
                f"{guess.measured_decode_speedup:.2f}",
            )
            for told in arms
            for speed in told.speeds
            if (guess := speed.prediction) is not None
        ),
        note="Predicted from acceptance and from the costs of one half of the blocks, a round's in "
        "plain forwards; held out is what the other half took. If the two are far apart, something "
        "else takes time.",
    )


def _texts(arms: Sequence[ArmSummary]) -> Table:
    """A row an arm and temperature; plain decoding's has its score to the references only."""
    rows: list[tuple[str, ...]] = []
    for told in arms:
        references = (
            _value(told.rouge_l_reference, 3),
            _interval(told.rouge_l_difference, 3, sign="+"),
        )
        rows += [
            (
                told.arm,
                f"{texts.temperature:g}",
                f"{texts.equal} of {texts.answers}",
                _interval(possible(texts.rouge_l), 3),
                _interval(possible(texts.rouge_l_baseline), 3),
                *references,
            )
            for texts in told.texts
        ] or [(told.arm, *[UNKNOWN] * 4, *references)]
    return Table(
        "Texts",
        (
            *("arm", "temperature", "equal to plain's", "ROUGE-L to plain", "plain to itself"),
            *("ROUGE-L to references", "less plain's"),
        ),
        tuple(rows),
        note="Plain is decoding without a draft on the same server. Plain to itself is what "
        "ROUGE-L to plain is held against: with other seeds where it draws, one at a time against "
        "in a batch where it is greedy. References are compared at all temperatures together.",
    )


def _divergences(arms: Sequence[ArmSummary]) -> Table:
    return Table(
        "Where texts part from plain's",
        (
            "arm",
            "temperature",
            "answers",
            "earliest token",
            "median",
            "widest gap, nats",
            "unranked",
        ),
        tuple(
            (
                told.arm,
                f"{texts.temperature:g}",
                str(texts.answers - texts.equal),
                UNKNOWN if texts.first_divergence is None else str(texts.first_divergence),
                _value(texts.median_divergence, 0),
                _value(texts.widest_gap, 2),
                str(texts.unranked),
            )
            for told in arms
            for texts in told.texts
            if texts.equal < texts.answers
        ),
        note="Tokens count from 0. The gap is how much plain decoding preferred its own token "
        "there; unranked are answers with a token that was none of its likeliest. Greedy texts "
        "that part at small gaps part by rounding.",
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
