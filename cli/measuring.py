"""Commands about figures: `evaluate` measures a draft on a real server, `gate` judges a report."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cli.exits import Exit
from cli.home import DEFAULT_HOME, HomeFolder, settings_of
from cli.models import Target, measured_draft
from cli.output import Json, emit, figure, progress_bars, table
from configuration.prompts import EXAMPLE

if TYPE_CHECKING:
    from speculation.records import Verdict

Tokenizer = Literal["words", "code"]
DRAFT = "A draft's folder, or `ngram`."


def evaluate(
    target: Target,
    draft: Annotated[str, typer.Option(metavar="DRAFT", help=DRAFT, callback=measured_draft)],
    prompts: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help=f"JSONL, a prompt a line: {EXAMPLE}", exists=True, dir_okay=False
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Made if need be: report.json, report.html with its figures, and what a run that "
            "is cut short has measured, from which the same command goes on.",
            file_okay=False,
        ),
    ],
    incumbent: Annotated[
        str | None,
        typer.Option(
            metavar="DRAFT",
            help="The draft that serves now, to be compared with.",
            callback=measured_draft,
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=1, help="Only the first so many prompts.")
    ] = None,
    draft_len: Annotated[int, typer.Option(min=1, max=16, help="K: tokens drafted a round.")] = 4,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer, in tokens.")] = 96,
    temperature: Annotated[
        list[float] | None,
        typer.Option(min=0, max=2, help="0, the default, decodes greedily. May be given again."),
    ] = None,
    concurrency: Annotated[
        int, typer.Option(min=1, help="Requests at once while acceptance is measured.")
    ] = 4,
    speed_concurrency: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            help="Requests at once while speed is measured, 1 by default. May be given again.",
        ),
    ] = None,
    tokenizer: Annotated[
        Tokenizer, typer.Option(help="Of ROUGE-L; code counts symbols and case too.")
    ] = "words",
    as_json: Json = False,
) -> None:
    """Measure a draft on a target, through the server that would serve it.

    Starts that server on loopback and sends every prompt to the draft, to the free n-gram draft and
    to plain decoding, and to the incumbent if one is given. Prints acceptance, tokens a round and
    speed, and keeps a report that `paceline gate` can judge.
    """
    from configuration.prompts import read_prompts
    from configuration.settings import Measuring, Pairing
    from evaluation.gate import judge
    from evaluation.page import page
    from evaluation.plan import plan
    from evaluation.plots import draw
    from evaluation.policy import Policy
    from evaluation.samples import question_digest
    from evaluation.summary import rows
    from flows.lineage import learned
    from flows.trial import run_trial
    from registry.compatibility import compare

    asked = read_prompts(prompts)[:count]
    policy = Policy(prompts=len(asked))
    arms = {"candidate": draft, **({"incumbent": incumbent} if incumbent else {})}
    for name, kind in arms.items():
        answer = compare(target, kind)
        if not answer.ok:
            emit({"arm": name, **_plain(answer)}, [f"the {name} cannot serve:", *answer.reasons])
            raise typer.Exit(Exit.NO)
    known = learned(draft) | learned(incumbent or "none")
    if met := tuple(prompt.id for prompt in asked if question_digest(prompt) in known):
        print(
            f"{len(met)} of {len(asked)} prompts are among those that a draft learned from, on "
            "which it is better than on any other: leave them out to judge it",
            file=sys.stderr,
        )
    measurement = Measuring(
        max_tokens=max_tokens,
        temperatures=tuple(temperature or (0.0,)),
        concurrency=concurrency,
        speed_concurrencies=tuple(speed_concurrency or (1,)),
        tokenizer=tokenizer,
    )
    if incumbent:
        planned = plan(policy, draft_len=draft_len, answer_tokens=max_tokens)
        print(*planned.sentences, sep="\n", file=sys.stderr)
    with progress_bars() as progress:
        report = run_trial(
            target,
            {**arms, "ngram": "ngram", "none": "none"},
            asked,
            out,
            line=Pairing(draft_len=draft_len, measurement=measurement),
            speed_prompts=policy.speed_prompts,
            progress=progress,
        )
    shown = out / "report.html"
    shown.write_text(page(report, judge(policy, report), draw(report, out)), encoding="utf-8")
    measured = rows(report)
    emit(
        {"report": out / "report.json", "page": shown, "digest": report.digest, "rows": measured},
        [*figures(measured), f"report: {out / 'report.json'}, to read: {shown}"],
    )


def gate(
    report: Annotated[
        Path,
        typer.Argument(
            metavar="REPORT", help="A report.json of `evaluate`.", exists=True, dir_okay=False
        ),
    ],
    pairing: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Judge by this pairing's policy; left out, by the shipped default."
        ),
    ] = None,
    home: HomeFolder = DEFAULT_HOME,
    as_json: Json = False,
) -> None:
    """Judge a report: may this draft replace the one that serves?

    Exit code 0 for PASS, 1 for FAIL, 3 for INCONCLUSIVE, which says how much more to measure. The
    rules and their limits are the `policy` table of a pairing in paceline.toml.
    """
    from evaluation.gate import judge
    from evaluation.policy import Policy
    from evaluation.report import Report

    policy = Policy() if pairing is None else settings_of(home).pairing(pairing).policy
    measured = Report.read(report)
    verdict = judge(policy, measured)
    emit(
        {"phase": verdict.phase, "findings": verdict.findings, "report": measured.digest},
        [str(verdict.phase), *findings(verdict)],
    )
    raise typer.Exit(PHASES[str(verdict.phase)])


PHASES = {"PASS": Exit.YES, "FAIL": Exit.NO, "INCONCLUSIVE": Exit.INCONCLUSIVE}
COLUMNS = (
    ("acceptance", "alpha_hat", 3),
    ("tokens a round", "acceptance_length", 2),
    ("forwards/request", "forwards_per_request", 1),
    ("tokens/s", "tokens_per_second", 1),
    ("plain tokens/s", "plain_tokens_per_second", 1),
    ("speed-up", "speedup", 2),
    ("ROUGE-L", "rouge_l", 3),
    ("same text", "exact_match", 3),
    ("requests", "requests", 0),
)


def figures(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A report's rows as a table for people."""
    heading = ["", *(title for title, _, _ in COLUMNS)]
    return table(
        [
            heading,
            *(
                [str(row["arm"]), *(figure(row[key], digits) for _, key, digits in COLUMNS)]
                for row in rows
            ),
        ]
    )


def findings(verdict: Verdict) -> list[str]:
    """A line for each rule."""
    return [
        f"  {finding.phase:12} {finding.rule}: {finding.statement}" for finding in verdict.findings
    ]


def _plain(answer: Any) -> dict[str, Any]:
    return {"compatible": answer.ok, "reasons": answer.reasons, "notes": answer.notes}
