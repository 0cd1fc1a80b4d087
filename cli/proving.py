"""`paceline bench gate`: shows on drafts of known truth that the gate's verdicts can be trusted."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.exits import Exit
from cli.output import Json, emit, figure, progress_bars, table
from speculation.records import Phase

if TYPE_CHECKING:
    from evaluation.proof import Proof, Tally

DECIDED = (Phase.PASS, Phase.FAIL)
WIDTH = 100  # characters of a line of text
HEADING = 11  # characters of a column's heading, in as many lines as it takes


def gate(
    runs: Annotated[int, typer.Option(min=20, help="Simulated gate runs of each case.")] = 200,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes that share the work; left out, one a CPU, 4 at most."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Prove the gate: let it judge drafts whose truth is known, beside rules that others use.

    Nothing is measured; reports are drawn. Exit code 1 when the gate gives a false verdict more
    often than it may, when it leaves open what it could tell, or when a rival breaks nothing, since
    then the proof could not tell a broken rule from the gate. The same options give the same
    figures on every machine.
    """
    from evaluation import proof

    with progress_bars() as progress:
        found = proof.prove(
            runs=runs,
            power_runs=max(20, runs // 2),
            shipped=proof.SHIPPED,
            others=proof.RIVALS,
            workers=workers or min(4, os.cpu_count() or 1),
            progress=progress,
        )
    emit(record(found), [*false_verdicts(found), "", *power(found), "", *conclusion(found)])
    raise typer.Exit(Exit.NO if found.faults else Exit.YES)


def false_verdicts(found: Proof) -> list[str]:
    """How often each rule was wrong, and how often it may be."""
    rules = (*found.shipped, *found.rivals)
    rows = headings(["truth: false verdict", "at most", *rules])
    for each in found.tallies:
        if each.truth.wrong is not None:
            bound = each.truth.bound(each.runs, found.policy.alpha)
            wrong = [each.wrong(rule) for rule in rules]
            cells = [f"{count}{'!' if count > bound else ' '}" for count in wrong]
            most = "open" if each.truth.known else f"{bound} of {each.runs}"
            rows.append([_wrong(each), most, *cells])
    return [
        f"False verdicts, each report of {_prompts()} prompts; ! is more than chance gives a rule "
        f"that errs at {found.policy.alpha:g}",
        *table(rows),
    ]


def power(found: Proof) -> list[str]:
    """How often what is true was told, beside how often a normal test could tell it."""
    heads = [f"{phase} {rule}" for phase in DECIDED for rule in (*found.shipped, "theory")]
    rows = headings(["difference", "correlation", "runs", *heads])
    for each in found.tallies:
        if each.truth.plain:
            rows.append(
                [
                    f"{each.truth.difference:+.2f}",
                    figure(each.truth.correlation, 2),
                    str(each.runs),
                    *(
                        figure(share, 2)
                        for phase in DECIDED
                        for share in _shares(found, each, phase)
                    ),
                ]
            )
    return [
        f"Share of runs with each verdict at the margin of {found.policy.acceptance_margin:g}; "
        "theory: a normal test with the drawn spread",
        *table(rows),
    ]


def conclusion(found: Proof) -> list[str]:
    """What the tables come to."""
    if found.faults:
        return ["The proof fails:", *(f"  {fault}" for fault in found.faults), *left_open(found)]
    caught = ", ".join(f"{rule} {len(found.caught(rule))}" for rule in found.rivals)
    return [
        "The gate keeps every bound. Of the cases with true figures rules that others use break:",
        f"{caught}.",
        *left_open(found),
    ]


def left_open(found: Proof) -> list[str]:
    """What no bound holds, so that nobody takes the proof for one of it."""
    lines = []
    for each in found.open:
        worse, passed = -each.truth.difference, each.wrong(found.shipped[0])
        lines += textwrap.wrap(
            f"Known and open: {each.truth.name}: a draft worse by {worse:.2f}, of which the server "
            f"says that all it drafted was kept, passed {passed} of {each.runs}. Acceptance is the "
            "server's own word: trust reports of endpoints that you run.",
            WIDTH,
        )
    return lines


def record(found: Proof) -> dict[str, Any]:
    """All of it for programs."""
    return {
        "holds": not found.faults,
        "faults": found.faults,
        "prompts": _prompts(),
        "policy": found.policy,
        "cases": [
            {
                "truth": each.truth,
                "runs": each.runs,
                "bound": None
                if each.truth.wrong is None
                else each.truth.bound(each.runs, found.policy.alpha),
                "verdicts": {rule: _counted(v) for rule, v in each.verdicts.items()},
                "theory": None
                if not each.truth.plain
                else {phase: found.theory(each.truth, phase) for phase in DECIDED},
            }
            for each in found.tallies
        ],
    }


def headings(names: Sequence[str]) -> list[list[str]]:
    """Columns' headings over several lines, so that a table of many rules fits on a page."""
    wrapped = [textwrap.wrap(name, HEADING) for name in names[1:]]
    lines = max(map(len, wrapped))
    padded = [[""] * (lines - len(each)) + each for each in wrapped]
    first = [""] * (lines - 1) + [names[0]]
    return [[label, *cells] for label, *cells in zip(first, *padded, strict=True)]


def _wrong(each: Tally) -> str:
    truth = each.truth
    name = f"{truth.name}, {truth.correlation:.2f}" if truth.plain else truth.name
    return f"{name}: {truth.wrong}"


def _shares(found: Proof, each: Tally, phase: Phase) -> list[float]:
    told = [each.verdicts[rule][phase] / each.runs for rule in found.shipped]
    return [*told, found.theory(each.truth, phase)]


def _counted(verdicts: Mapping[Phase, int]) -> dict[str, int]:
    return {str(phase): count for phase, count in verdicts.items()}


def _prompts() -> int:
    from evaluation.proof import PROMPTS

    return PROMPTS
