"""`paceline bench`: what speculation costs and gains, as ratios of interleaved runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.models import Target, measured_draft
from cli.output import Json, emit, figure, progress_bars, table

app = typer.Typer(no_args_is_help=True, help="Measure speed as ratios of interleaved runs.")


@app.callback()
def bench() -> None:
    """Measure speed as ratios of interleaved runs."""


@app.command()
def engine(
    target: Target,
    draft: Annotated[
        str, typer.Option(help="A draft's folder, or `ngram`.", callback=measured_draft)
    ],
    prompts: Annotated[
        Path, typer.Option(help="Prompts file (JSONL).", exists=True, dir_okay=False)
    ],
    draft_lens: Annotated[
        str, typer.Option(help="Draft lengths to try, separated by commas.")
    ] = "1,2,3,4,5,6",
    count: Annotated[int, typer.Option(help="Prompts to decode in each run.", min=1)] = 8,
    max_tokens: Annotated[int, typer.Option(help="Tokens of an answer at most.", min=1)] = 96,
    concurrency: Annotated[int, typer.Option(help="Sequences side by side.", min=1)] = 1,
    turns: Annotated[int, typer.Option(help="Runs of each draft length.", min=1)] = 3,
    as_json: Json = False,
) -> None:
    """Decode the same prompts without a draft and with one at several draft lengths.

    Every line's speed-up is over plain decoding in the same turn; the range is over the turns. The
    last line lets the engine adapt K; its measured costs and hazards give what is predicted.
    """
    from configuration.prompts import read_prompts
    from speculation.bench import bench as measured
    from speculation.drafters import load_drafter
    from speculation.target import load_target
    from training.recipe import Recipe
    from training.regenerate import encode, load_tokenizer, stop_ids

    lens = _numbers(draft_lens)
    model = load_target(target)
    tokenizer = load_tokenizer(target)
    chosen = encode(tokenizer, read_prompts(prompts), Recipe(responses=count))
    if not chosen:
        raise ValueError(f"{prompts}: no prompt is short enough to be decoded here")
    ids = [tokens for _, tokens in chosen]
    longest = max(map(len, ids)) + max_tokens
    drafter = load_drafter(draft, model, rows=concurrency, max_len=longest)
    with progress_bars() as progress:
        found = measured(
            model,
            drafter,
            ids,
            draft_lens=lens,
            max_tokens=max_tokens,
            slots=concurrency,
            turns=turns,
            stop_ids=stop_ids(model, tokenizer),
            progress=progress,
        )
    rows = [["K", "tokens/s", "speed-up", "range", "predicted", "alpha-hat", "length"]]
    rows += [
        [
            "adapted" if timing.draft_len is None else str(timing.draft_len),
            figure(timing.tokens_per_second, 1),
            figure(timing.speedup, 2),
            f"{min(timing.speedups):.2f} to {max(timing.speedups):.2f}",
            figure(timing.predicted, 2),
            figure(timing.counts.acceptance),
            figure(timing.counts.acceptance_length, 2),
        ]
        for timing in found
    ]
    emit({"draft_lens": found}, table(rows))


def _numbers(given: str) -> list[int]:
    try:
        found = [int(part) for part in given.split(",")]
    except ValueError:
        found = [0]
    if min(found) < 1:
        raise typer.BadParameter(
            f"got {given!r}, wanted draft lengths of 1 or more such as 2,4,6",
            param_hint="--draft-lens",
        )
    return found
