"""A report and its verdict as one Markdown page, for MLflow, Prefect and terminals.

Knows Markdown. What is said comes from shown.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from evaluation.report import Report
from evaluation.shown import Rule, Table, shown
from speculation.records import Verdict

SPECIAL = re.compile(r"([\\*_\[\]<>|~#])")
CODE = re.compile(r"(`[^`]*`)")


def markdown(report: Report, verdict: Verdict, pictures: Sequence[str] = ()) -> str:
    """The whole page. `pictures` are file names beside it."""
    told = shown(report, verdict)
    parts = [
        f"# {told.phase}",
        f"**{_text(told.sentence)}**",
        "## What to do next",
        "\n".join(f"{number}. {_text(step)}" for number, step in enumerate(told.steps, start=1)),
        "## Why",
        _rules(told.rules),
        *(f"![{name.partition('.')[0]}]({name})" for name in pictures),
        *(part for table in told.tables for part in _table(table)),
        *_table(told.conditions),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _rules(rules: Iterable[Rule]) -> str:
    return _lines(
        ("verdict", "rule", "estimate", "interval", "limit", "what was found"),
        (
            (
                f"**{rule.mark}**{' (excused)' if rule.finding.excused else ''}",
                _text(rule.name),
                rule.estimate,
                rule.interval,
                rule.limit,
                _text(rule.statement),
            )
            for rule in rules
        ),
    )


def _table(table: Table) -> Iterable[str]:
    yield f"## {_text(table.heading)}"
    yield _lines(
        table.columns, ([_text(cell.replace("\n", ", ")) for cell in row] for row in table.rows)
    )
    yield _text(table.note)


def _lines(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def _text(text: str) -> str:
    """As it is, on one line: nothing in it a link, a tag or emphasis; commands in backticks are."""
    one_line = " ".join(text.split())
    parts = CODE.split(one_line)
    return "".join(
        part.replace("|", "\\|") if place % 2 else SPECIAL.sub(r"\\\1", part).replace("`", "\\`")
        for place, part in enumerate(parts)
    )
