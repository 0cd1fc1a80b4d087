"""A report and its verdict as one HTML page: nothing to load, no script, everything escaped.

Knows how things look. What is said comes from shown.py.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from evaluation.markdown import markdown
from evaluation.report import Report
from evaluation.shown import UNKNOWN, Rule, Table, shown
from speculation.records import Finding, Verdict

CODE = re.compile(r"`([^`]*)`")
BAR_WIDTH, BAR_HEIGHT = 150, 22

STYLE = """
:root { color-scheme: light dark; --line: #8884; --pass: #2e7d32; --fail: #c62828;
        --open: #9a6b00; --soft: #8881; }
@media (prefers-color-scheme: dark) { :root { --pass: #66bb6a; --fail: #ef7672; --open: #e0b040; } }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 0 auto 3rem;
       padding: 1rem; overflow-wrap: break-word; }
h1 { font-size: 1.1rem; font-weight: 600; opacity: .75; margin: 1rem 0 .5rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
.verdict { border-left: .5rem solid; padding: .75rem 1rem; font-size: 1.25rem; margin: 0;
           background: var(--soft); border-radius: 0 .4rem .4rem 0; }
.verdict b { display: block; font-size: .85rem; letter-spacing: .08em; }
.PASS { border-color: var(--pass); } .FAIL { border-color: var(--fail); }
.INCONCLUSIVE { border-color: var(--open); }
b.PASS { color: var(--pass); } b.FAIL { color: var(--fail); } b.INCONCLUSIVE { color: var(--open); }
ol { padding-left: 1.4rem; } li { margin: .25rem 0; }
code { background: var(--soft); padding: .05rem .3rem; border-radius: .25rem; font-size: .9em; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; vertical-align: top; padding: .4rem .6rem;
         border-bottom: 1px solid var(--line); }
th { font-weight: 600; white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.rules td:first-child { white-space: nowrap; } .rules b { font-size: .8rem; }
.rules .name { font-weight: 600; display: block; }
.scroll { overflow-x: auto; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr));
         gap: 1rem; margin: 1.5rem 0; }
.plots img { width: 100%; background: white; border: 1px solid var(--line); border-radius: .4rem; }
small { opacity: .75; } svg { display: block; }
details table td:first-child { white-space: nowrap; }
@media (max-width: 48rem) {
  .rules thead { display: none; }
  .rules tr { display: grid; grid-template-columns: repeat(3, auto) 1fr; gap: 0 1rem;
              border-bottom: 1px solid var(--line); padding: .6rem 0; }
  .rules td { border: 0; padding: .1rem 0; text-align: left; }
  .rules td.wide { grid-column: 1 / -1; }
  .rules td.number { white-space: normal; }
  .rules td.number::before { content: attr(data-name); display: block; opacity: .75;
                             font-size: .75rem; }
  details table td:first-child { white-space: normal; }
}
"""


def page(report: Report, verdict: Verdict, plots: Sequence[Path] = ()) -> str:
    """The whole page. `plots` are PNG files; they are embedded."""
    told = shown(report, verdict)
    title = f"Paceline report: {told.phase}"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{STYLE}</style></head><body>
<h1>May this draft serve?</h1>
<p class="verdict {told.phase}"><b class="{told.phase}">{told.phase}</b>
{_text(told.sentence)}</p>
<h2>What to do next</h2>
<ol>{"".join(f"<li>{_text(step)}</li>" for step in told.steps)}</ol>
<h2>Why</h2>
{_rules(told.rules)}
<div class="plots">{"".join(map(_plot, plots))}</div>
{"".join(map(_table, told.tables))}
<details><summary>{escape(told.conditions.heading)}</summary>
{_cells(told.conditions)}</details>
</body></html>
"""


def write(report: Report, verdict: Verdict, folder: Path) -> Path:
    """Draw the plots and write report.html and report.md beside them; the page's path."""
    from evaluation.plots import draw  # matplotlib: half a second

    plots = draw(report, folder)
    html = folder / "report.html"
    html.write_text(page(report, verdict, plots), encoding="utf-8")
    text = markdown(report, verdict, [plot.name for plot in plots])
    (folder / "report.md").write_text(text, encoding="utf-8")
    return html


def _rules(rules: Iterable[Rule]) -> str:
    head = "".join(
        f"<th{kind}>{name}</th>"
        for name, kind in (
            ("verdict", ""),
            ("rule", ""),
            ("interval and limit", ""),
            ("estimate", ' class="number"'),
            ("interval", ' class="number"'),
            ("limit", ' class="number"'),
        )
    )
    body = "".join(
        f'<tr><td class="wide"><b class="{rule.mark}">{rule.mark}'
        f"{' (excused)' if rule.finding.excused else ''}</b></td>"
        f'<td class="wide"><span class="name">{escape(rule.name)}</span>'
        f"{_text(rule.statement)}</td>"
        f'<td class="wide">{_bar(rule.finding)}</td>'
        + "".join(
            f'<td class="number" data-name="{name}">{escape(value)}</td>'
            if rule.finding.interval is not None
            else '<td class="number"></td>'
            for name, value in (
                ("estimate", rule.estimate),
                ("interval", rule.interval),
                ("limit", rule.limit),
            )
        )
        + "</tr>"
        for rule in rules
    )
    return f'<table class="rules"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _bar(finding: Finding) -> str:
    """The interval as a line with its estimate, beside the limit as a stroke."""
    known, limit = finding.interval, finding.threshold
    if known is None or limit is None:
        return ""
    left, right = min(known.low, limit), max(known.high, limit)
    width = (right - left) or 1.0

    def x(value: float) -> float:
        return round(8 + (value - left) / width * (BAR_WIDTH - 16), 1)

    middle, color = (
        BAR_HEIGHT / 2,
        {"PASS": "--pass", "FAIL": "--fail"}.get(finding.phase, "--open"),
    )
    words = f"{known.low:.3f} to {known.high:.3f}, limit {limit:g}"
    return (
        f'<svg width="{BAR_WIDTH}" height="{BAR_HEIGHT}" role="img" aria-label="{words}">'
        f'<line x1="{x(limit)}" x2="{x(limit)}" y1="1" y2="{BAR_HEIGHT - 1}" stroke="currentColor" '
        f'stroke-width="1.5" stroke-dasharray="3 2"/>'
        f'<line x1="{x(known.low)}" x2="{x(known.high)}" y1="{middle}" y2="{middle}" '
        f'stroke="var({color})" stroke-width="3" stroke-linecap="round"/>'
        f'<circle cx="{x(known.estimate)}" cy="{middle}" r="4.5" fill="var({color})"/></svg>'
    )


def _table(table: Table) -> str:
    note = f"<p><small>{_text(table.note)}</small></p>" if table.note else ""
    return f"<h2>{escape(table.heading)}</h2>{_cells(table)}{note}"


def _cells(table: Table) -> str:
    def cell(tag: str, place: int, text: str) -> str:
        kind = ' class="number"' if place >= table.figures else ""
        estimate, _, bounds = text.partition("\n")
        small = f"<br><small>{escape(bounds)}</small>" if bounds else ""
        return f"<{tag}{kind}>{escape(estimate) or UNKNOWN}{small}</{tag}>"

    def row(tag: str, cells: Sequence[str]) -> str:
        return f"<tr>{''.join(cell(tag, place, text) for place, text in enumerate(cells))}</tr>"

    body = "".join(row("td", cells) for cells in table.rows)
    return (
        f'<div class="scroll"><table><thead>{row("th", table.columns)}</thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _plot(path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return f'<img alt="{escape(path.stem)}" src="data:image/png;base64,{data}">'


def _text(text: str) -> str:
    """Escaped; what stands in backticks as code."""
    return CODE.sub(r"<code>\1</code>", escape(text))
