"""A report and its verdict as one HTML page: nothing to load, no script, everything escaped.

Knows how things look. What it says comes from the verdict and the summaries.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path

from evaluation.report import Report
from evaluation.summary import ArmSummary, summarise
from speculation.records import Finding, Interval, Phase, Verdict

MEANING = {
    Phase.PASS: "The new draft may serve: it passed every rule.",
    Phase.FAIL: "The new draft may not serve: a rule found it worse than is allowed.",
    Phase.INCONCLUSIVE: "Not decided: what was measured does not tell. What serves stays.",
}

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; font-size: .9rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem;
         border-bottom: 1px solid #8884; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.verdict { border-left: .5rem solid; padding: .5rem 1rem; font-size: 1.2rem; }
.PASS { border-color: #2e7d32; } .FAIL { border-color: #c62828; }
.INCONCLUSIVE { border-color: #b28704; }
b.PASS { color: #2e7d32; } b.FAIL { color: #c62828; } b.INCONCLUSIVE { color: #b28704; }
img { max-width: 100%; background: white; }
small { opacity: .75; }
"""


def page(report: Report, verdict: Verdict, plots: Sequence[Path] = ()) -> str:
    """The whole page. `plots` are PNG files; they are embedded."""
    told = [summarise(report, arm) for arm in report.arms]
    title = f"Paceline report: {verdict.phase}"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{STYLE}</style></head><body>
<h1>May this draft serve?</h1>
<p class="verdict {verdict.phase}"><b class="{verdict.phase}">{verdict.phase}</b>
{escape(MEANING[verdict.phase])}</p>
<h2>Why</h2>
{_table(("rule", "", "what was found", "limit"), map(_finding, verdict.findings))}
<h2>What was measured</h2>
{_table(ARM_HEADER, map(_arm, told))}
<p><small>Intervals hold the truth nine times in ten; the units are requests, and for speed blocks
of requests. Acceptance: tokens kept over tokens judged. Speed: whole requests, one at a time.
ROUGE-L and equal answers: against plain decoding on the same server.</small></p>
{"".join(_plot(path) for path in plots)}
<h2>To measure it again</h2>
{_table(("condition", "value"), _conditions(report))}
</body></html>
"""


ARM_HEADER = (
    "arm",
    "requests",
    "acceptance",
    "tokens a round",
    "forwards a request",
    "tokens a second",
    "times plain",
    "ROUGE-L",
    "equal answers",
    "correlation",
)


def _arm(told: ArmSummary) -> tuple[str, ...]:
    return (
        escape(told.arm),
        _number(str(told.requests)),
        _interval(told.acceptance, 3),
        _interval(told.acceptance_length, 2),
        _interval(told.forwards_per_request, 1),
        _value(told.tokens_per_second, 1),
        _interval(told.speedup, 2),
        _value(told.rouge_l, 3),
        _value(told.exact_match, 3),
        _value(told.correlation, 3),
    )


def _finding(finding: Finding) -> tuple[str, ...]:
    return (
        escape(finding.rule.replace("_", " ")),
        f'<b class="{finding.phase}">{finding.phase}</b>',
        escape(finding.statement),
        _value(finding.threshold, 2),
    )


def _conditions(report: Report) -> Iterable[tuple[str, ...]]:
    for name, value in asdict(report.conditions).items():
        yield escape(name.replace("_", " ")), escape(str(value))
    yield "ROUGE-L tokenizer", escape(report.tokenizer)
    yield "report digest", escape(report.digest)


def _table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Cells are HTML already; a cell that begins with <td is its own."""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(
        "<tr>" + "".join(c if c.startswith("<td") else f"<td>{c}</td>" for c in line) + "</tr>"
        for line in lines
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _plot(path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return f'<p><img alt="{escape(path.stem)}" src="data:image/png;base64,{data}"></p>'


def _number(text: str) -> str:
    return f'<td class="number">{text}</td>'


def _value(value: float | None, digits: int) -> str:
    return _number("–" if value is None else f"{value:.{digits}f}")


def _interval(interval: Interval | None, digits: int) -> str:
    if interval is None:
        return _number("–")
    low, high = f"{interval.low:.{digits}f}", f"{interval.high:.{digits}f}"
    return _number(f"{interval.estimate:.{digits}f}<br><small>{low} to {high}</small>")
