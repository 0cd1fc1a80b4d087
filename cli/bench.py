"""`paceline bench`: what speculation costs and gains, as ratios of interleaved runs; the proof
that the gate's verdicts can be trusted (proving.py), and the monitor's alarms (bench_monitor.py);
how long the loop takes and what it costs (bench_loop.py);
and the founding case (case.py)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli import bench_fingerprint, bench_loop, bench_monitor, bench_registry, case, proving
from cli.models import Target, measured_draft
from cli.output import Json, emit, figure, progress_bars, table
from configuration.prompts import EXAMPLE

if TYPE_CHECKING:
    from speculation.bench import Timing
    from speculation.records import Interval

app = typer.Typer(no_args_is_help=True, help="Measure speed, and put the gate to the proof.")


@app.callback()
def bench() -> None:
    """Measure speed, and put the gate to the proof."""


app.command()(proving.gate)
app.command()(bench_fingerprint.fingerprint)
app.command()(bench_registry.registry)
app.command()(bench_monitor.monitor)
app.command()(bench_loop.loop)
app.command()(case.case)


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
    turns: Annotated[
        int, typer.Option(help="Runs of each way of decoding; of one there is no interval.", min=1)
    ] = 5,
    beside: Annotated[
        bool,
        typer.Option(
            "--transformers/--no-transformers", help="Time transformers' generate beside."
        ),
    ] = True,
    as_json: Json = False,
) -> None:
    """Decode the same prompts without a draft and with each draft at several draft lengths.

    Throughput, latency and time to the first token are ratios to plain decoding in the same turn
    (each prompt's times to its own), with 95 % intervals over the turns: of these prompts on this
    machine. Above 1 throughput is better, below 1 times are. The K of the lines `adapted` is the
    engine's own; its costs and hazards give the throughput that is predicted. Assisted generation,
    `transformers + DRAFT`, takes no head, and one prompt at a time, for which the others wait.
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
    emit(
        {"timings": [asdict(timing) | {"over_plain": _over_plain(timing)} for timing in found]},
        _shown(found, turns),
    )


WHO = ("decoder", "K")
RATIOS = (*WHO, "throughput", "latency", "first token")
MEDIANS = (*WHO, "tokens/s", "latency s", "first token s", "predicted", "alpha-hat", "length")


def _shown(found: Sequence[Timing], turns: int) -> list[str]:
    """For each load what is to be compared, and then what it was measured as."""
    lines = []
    for level in dict.fromkeys(timing.concurrency for timing in found):
        its = [timing for timing in found if timing.concurrency == level]
        ratios = [[*_who(timing), *_ratios(timing)] for timing in its]
        lines += [
            f"{level} at once: ratios to plain decoding, 95 % intervals over {turns} turns",
            *table([RATIOS, *ratios]),
            "",
            f"{level} at once: medians",
            *table([MEDIANS, *([*_who(timing), *_medians(timing)] for timing in its)]),
            "",
        ]
    return lines[:-1]


def _who(timing: Timing) -> list[str]:
    return [timing.name, "adapted" if timing.draft_len is None else str(timing.draft_len)]


def _ratios(timing: Timing) -> list[str]:
    from speculation.bench import PLAIN

    return [
        _ratio(one.estimate)
        if one.n < 2 or timing.name == PLAIN
        else f"{_ratio(one.estimate)} [{_ratio(one.low)}, {_ratio(one.high)}]"
        for one in _over_plain(timing).values()
    ]


def _ratio(value: float) -> str:
    """In four signs or so, far off too."""
    return figure(value, 2 if value < 10 else 1 if value < 100 else 0)


def _medians(timing: Timing) -> list[str]:
    return [
        figure(timing.tokens_per_second, 1),
        figure(timing.latency_seconds, 3),
        figure(timing.first_token_seconds, 3),
        figure(timing.predicted, 2),
        figure(timing.counts.acceptance),
        figure(timing.counts.acceptance_length, 2),
    ]


def _over_plain(timing: Timing) -> dict[str, Interval]:
    return {
        "throughput": over_turns(timing.speedups),
        "latency": over_turns(timing.latency_ratios),
        "first_token": over_turns(timing.first_token_ratios),
    }


def over_turns(ratios: Sequence[float]) -> Interval:
    """The ratios' geometric mean, with its 95 % interval; of one turn not a number."""
    import numpy as np

    from evaluation.statistics import clustered
    from speculation.records import Interval

    logs, ones = np.log(ratios), np.ones(len(ratios))
    found = clustered([logs, ones], lambda a, b: np.exp(a / b), alpha=0.025, log=True)
    return found or Interval(float(np.exp(logs.mean())), math.nan, math.nan, len(ratios))


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
