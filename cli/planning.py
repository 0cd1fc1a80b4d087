"""`evaluate --plan`: how many prompts the policy needs, said before any server is started."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from evaluation.plan import Plan
    from evaluation.policy import Policy

PlanOnly = Annotated[
    bool,
    typer.Option(
        "--plan", help="Only say how many prompts the policy needs; nothing is started or measured."
    ),
]
Earlier = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="REPORT",
        help="For --plan: the report whose variance it reckons with; left out, the one in --out, "
        "and assumptions where there is none.",
        exists=True,
        dir_okay=False,
    ),
]
PolicyFile = Annotated[
    Path | None,
    typer.Option(
        "--policy",
        metavar="FILE",
        help="TOML, the keys of a pairing's `policy` table; left out, the shipped default.",
        exists=True,
        dir_okay=False,
    ),
]


def planned(policy: Policy, earlier: Path | None, out: Path, **assumed: float) -> Plan:
    """What the policy needs, by the earlier report if there is one.

    Raises ValueError, with its reason, for a named report that cannot be read or tells nothing. One
    that merely lies in `out` and does not is passed over.
    """
    from evaluation.plan import plan
    from evaluation.report import Report

    if earlier is not None:
        return plan(policy, report=Report.read(earlier), **assumed)  # type: ignore[arg-type] # numbers, by its own names
    if (stored := out / "report.json").is_file():
        try:
            return plan(policy, report=Report.read(stored), **assumed)  # type: ignore[arg-type]
        except ValueError as error:
            print(f"{error}; so assumptions it is", file=sys.stderr)
    return plan(policy, **assumed)  # type: ignore[arg-type]


def as_object(plan: Plan) -> dict[str, Any]:
    """For --json."""
    most = plan.most_needed
    return {**asdict(plan), "most_needed": None if most is None else most.prompts}
