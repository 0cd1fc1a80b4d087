"""`evaluate --until-sure`: its options, and what is told at each look."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from evaluation.report import Report
    from speculation.records import Verdict

LOOKS, MOST_LOOKS = 4, 8  # as evaluation/sequential.py, not imported only to print help

UntilSure = Annotated[
    bool,
    typer.Option(
        "--until-sure",
        help="Judge while it measures and end as soon as PASS or FAIL is safe, or when all prompts "
        "are used up. All looks together err no more often than one.",
    ),
]
MostLooks = Annotated[
    int,
    typer.Option(
        "--looks",
        min=1,
        max=MOST_LOOKS,
        help="For --until-sure: at most so many looks, evenly. Of more than 8 the first has a "
        "share of alpha that a bootstrap cannot tell.",
    ),
]


def looked(report: Report, verdict: Verdict) -> None:
    """Tell people what a look found."""
    looks = report.looks
    if looks is not None:
        print(
            f"look {looks.number} of at most {len(looks.planned)}, after {len(report.prompts)} of "
            f"{looks.planned[-1]} prompts: {verdict.phase}",
            file=sys.stderr,
        )
