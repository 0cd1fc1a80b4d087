"""`paceline bench`: what speculation costs and gains, as ratios of interleaved runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.models import Target, measured_draft
from cli.output import Json, emit, figure, progress_bars, table
from configuration.prompts import EXAMPLE

if TYPE_CHECKING:
    from speculation.bench import Timing

app = typer.Typer(no_args_is_help=True, help="Measure speed as ratios of interleaved runs.")


@app.callback()
def bench() -> None:
    """Measure speed as ratios of interleaved runs."""


@app.command()
def engine(
    target: Target,
    draft: Annotated[
        list[str],
        typer.Option(
            metavar="DRAFT",
            help="A draft's folder, or `ngram`; give it again for one more.",
            callback=lambda drafts: [one for one in drafts if measured_draft(one)],
        ),
    ],
    prompts: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help=f"JSONL, a prompt a line: {EXAMPLE}", exists=True, dir_okay=False
        ),
    ],
    draft_lens: Annotated[
        str, typer.Option(metavar="K,K,…", help="Draft lengths to try, separated by commas.")
    ] = "2,4,6",
    count: Annotated[int, typer.Option(help="Prompts to decode in each run.", min=1)] = 8,
    max_tokens: Annotated[int, typer.Option(help="Tokens of an answer at most.", min=1)] = 96,
    concurrency: Annotated[
        str,
        typer.Option(
            metavar="N,N,…", help="Prompts side by side, such as 1,4,8: all are measured."
        ),
    ] = "1,4,8",
    turns: Annotated[int, typer.Option(help="Runs of each way of decoding.", min=1)] = 3,
    beside: Annotated[
        bool,
        typer.Option(
            "--transformers/--no-transformers", help="Time transformers' generate beside."
        ),
    ] = True,
    as_json: Json = False,
) -> None:
    """Decode the same prompts without a draft and with each draft at several draft lengths.

    Every line's speed-up is over plain decoding in the same turn; the range is over the turns. The
    K of the lines `adapted` is the engine's own; its costs and hazards give what is predicted.
    Latency and first token are of the median prompt. Assisted generation of transformers takes one
    prompt at a time, and no head.
    """
    from configuration.prompts import read_prompts
    from speculation.bench import bench as measured
    from speculation.drafters import load_drafter
    from speculation.target import load_target
    from training.recipe import Recipe
    from training.regenerate import encode, load_tokenizer, stop_ids

    lens, levels = _numbers(draft_lens, "--draft-lens"), _numbers(concurrency, "--concurrency")
    model = load_target(target)
    tokenizer = load_tokenizer(target)
    chosen = encode(tokenizer, read_prompts(prompts), Recipe(responses=count))
    if not chosen:
        raise ValueError(f"{prompts}: no prompt is short enough to be decoded here")
    ids = [tokens for _, tokens in chosen]
    longest, ends = max(map(len, ids)) + max_tokens, stop_ids(model, tokenizer)
    drafts = {_name(one, draft): one for one in draft}
    found = []
    for level in levels:
        others = {}
        if beside:
            from speculation.bench_transformers import transformers_ways

            others = transformers_ways(
                target,
                model,
                drafts,
                ids,
                draft_lens=lens,
                max_tokens=max_tokens,
                concurrency=level,
                stop_ids=ends,
            )
        with progress_bars() as progress:
            found += measured(
                model,
                {
                    name: load_drafter(one, model, rows=level, max_len=longest)
                    for name, one in drafts.items()
                },
                ids,
                draft_lens=lens,
                max_tokens=max_tokens,
                concurrency=level,
                turns=turns,
                stop_ids=ends,
                others=others,
                progress=progress,
            )
    emit({"timings": found}, table([HEAD, *map(_row, found)]))


HEAD = [
    *("at once", "decoder", "K", "tokens/s", "speed-up", "range", "latency s", "first token s"),
    *("predicted", "alpha-hat", "length"),
]


def _row(timing: Timing) -> list[str]:
    return [
        str(timing.concurrency),
        timing.name,
        "adapted" if timing.draft_len is None else str(timing.draft_len),
        figure(timing.tokens_per_second, 1),
        figure(timing.speedup, 2),
        f"{min(timing.speedups):.2f} to {max(timing.speedups):.2f}",
        figure(timing.latency_seconds, 3),
        figure(timing.first_token_seconds, 3),
        figure(timing.predicted, 2),
        figure(timing.counts.acceptance),
        figure(timing.counts.acceptance_length, 2),
    ]


def _name(draft: str, drafts: list[str]) -> str:
    """What a draft is called: its folder's name, or all of its path where two are alike."""
    names = [Path(one).name for one in drafts]
    return draft if names.count(Path(draft).name) > 1 else Path(draft).name


def _numbers(given: str, option: str) -> list[int]:
    try:
        found = [int(part) for part in given.split(",")]
    except ValueError:
        found = [0]
    if min(found) < 1:
        raise typer.BadParameter(
            f"got {given!r}, wanted whole numbers of 1 or more such as 1,4,8", param_hint=option
        )
    return found
