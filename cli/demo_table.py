"""The demo's end: its table, demo.json and how it exits. Figures in, rows and text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cli.output import figure, table

COLUMNS = (  # of demo.json, and the heading people see
    ("alpha_hat", "acceptance"),
    ("acceptance_length", "accept. length"),
    ("forwards_per_request", "forwards/request"),
    ("tokens_per_second", "tokens/s"),
    ("plain_tokens_per_second", "plain tokens/s"),
    ("speedup", "speed-up"),
    ("rouge_l", "ROUGE-L"),
    ("exact_match", "exact match"),
    ("requests", "requests"),
)
OLD_ON_OLD = "old draft on old target"
OLD_ON_NEW = "old draft on new target"
NEW_ON_NEW = "new draft on new target"


def demo_rows(
    first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]] | None
) -> list[dict[str, Any]]:
    """The rows of demo.json from the reports' rows of release 1 and 2; None: not measured yet."""
    chosen = [(OLD_ON_OLD, _arm(first, "candidate"))]
    if second is not None:
        chosen += [
            (OLD_ON_NEW, _arm(second, "incumbent")),
            (NEW_ON_NEW, _arm(second, "candidate")),
        ]
    return [
        {"pair": name, **{column: row[column] for column, _ in COLUMNS}}
        for name, row in chosen
        if row is not None
    ]


def demo_text(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The rows as a table for people."""
    heading = ["", *(title for _, title in COLUMNS)]
    body = [
        [str(row["pair"]), *(_cell(column, row[column]) for column, _ in COLUMNS)] for row in rows
    ]
    return table([heading, *body])


def _arm(rows: Sequence[Mapping[str, Any]], arm: str) -> Mapping[str, Any] | None:
    return next((row for row in rows if row["arm"] == arm), None)


def _cell(column: str, value: Any) -> str:
    if column == "requests":
        return str(value)
    return figure(value, 1 if column.endswith(("per_second", "per_request")) else 3)
