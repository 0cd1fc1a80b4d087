"""`gate`: judges a stored report."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import Exit
from cli.home import DEFAULT_HOME, HomeFolder, settings_of
from cli.output import Json, emit, visible
from cli.planning import PolicyFile

if TYPE_CHECKING:
    from speculation.records import Verdict

PHASES = {"PASS": Exit.YES, "FAIL": Exit.NO, "INCONCLUSIVE": Exit.INCONCLUSIVE}


def gate(
    report: Annotated[
        Path,
        typer.Argument(
            metavar="REPORT", help="A report.json of `evaluate`.", exists=True, dir_okay=False
        ),
    ],
    incumbent: Annotated[
        Path | None,
        typer.Option(
            metavar="REPORT",
            help="The report of the draft that serves now, where REPORT did not measure it too.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    policy: PolicyFile = None,
    pairing: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Judge by this pairing's policy in paceline.toml."),
    ] = None,
    home: HomeFolder = DEFAULT_HOME,
    as_json: Json = False,
) -> None:
    """Judge a report: may this draft replace the one that serves?

    The same report and policy always give the same verdict. Exit code 0 for PASS, 1 for FAIL, 3 for
    INCONCLUSIVE, which says how much more to measure. docs/gate.md explains each rule.
    """
    from configuration.reading import read_policy
    from evaluation.gate import judge
    from evaluation.policy import Policy
    from evaluation.report import Report
    from evaluation.telling import next_steps, sentence

    if policy is not None and pairing is not None:
        raise typer.BadParameter("got --policy and --pairing, wanted one of them")
    limits = Policy()
    if policy is not None:
        limits = read_policy(policy)
    if pairing is not None:
        limits = settings_of(home).pairing(pairing).policy
    measured = Report.read(report)
    verdict = judge(limits, measured, None if incumbent is None else Report.read(incumbent))
    told, steps = sentence(verdict), next_steps(verdict)
    emit(
        {**asdict(verdict), "report": measured.digest, "sentence": told, "next": steps},
        [
            *(str(verdict.phase), visible(told), *findings(verdict)),
            *("Next:", *(visible(f"  {step}") for step in steps)),
        ],
    )
    raise typer.Exit(PHASES[str(verdict.phase)])


def findings(verdict: Verdict) -> list[str]:
    """A line for each rule."""
    from evaluation.telling import mark

    return [
        visible(f"  {mark(finding):12} {finding.rule}: {finding.statement}")
        for finding in verdict.findings
    ]
