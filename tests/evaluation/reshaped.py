"""Simulated reports made into others: longer contexts, more requests at once, references, another
adapter. Each keeps everything else as it was drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from evaluation.parity import Parity
from evaluation.report import PromptFacts, Report, RequestFigures
from evaluation.samples import SpeedBlock
from evaluation.simulation import EQUAL

Change = Callable[[RequestFigures], RequestFigures]


def changed(measured: Report, arm: str, change: Change, *, run: str = "acceptance") -> Report:
    return replace(
        measured,
        requests=tuple(change(r) if (r.arm, r.run) == (arm, run) else r for r in measured.requests),
    )


def without(measured: Report, arm: str) -> Report:
    pairs = {a: p for a, p in measured.conditions.pairs.items() if a != arm}
    return replace(
        measured,
        conditions=replace(measured.conditions, pairs=pairs),
        requests=tuple(r for r in measured.requests if r.arm != arm),
        blocks=tuple(b for b in measured.blocks if b.arm != arm),
        errors={a: count for a, count in measured.errors.items() if a != arm},
    )


def with_prompts(measured: Report, change: Callable[[int, PromptFacts], PromptFacts]) -> Report:
    facts = tuple(change(place, prompt) for place, prompt in enumerate(measured.prompts))
    return replace(measured, prompts=facts)


def with_lengths(measured: Report, tokens: Callable[[int], int]) -> Report:
    """Prompt number n has `tokens(n)` tokens."""
    lengths = {prompt.id: tokens(place) for place, prompt in enumerate(measured.prompts)}
    return replace(
        measured,
        requests=tuple(replace(r, prompt_tokens=lengths[r.prompt]) for r in measured.requests),
    )


def at_once_too(measured: Report, at_once: int, slower: Mapping[str, float]) -> Report:
    """Speed at another concurrency as well: each arm's requests take `slower` times as long, and
    a block's are all asked at once, so that it takes what its longest does. Blocks there differ by
    a few percent."""
    rng = np.random.default_rng(17)
    runs = [r for r in measured.requests if r.run == "speed" and r.concurrency == 1]
    more: list[RequestFigures] = []
    seconds: dict[tuple[str, int], float] = {}
    for request in runs:
        took = request.seconds * slower.get(request.arm, 1.0) * float(rng.uniform(0.97, 1.03))
        more.append(replace(request, concurrency=at_once, seconds=took, first_token_seconds=0.1))
        key = request.arm, request.block
        seconds[key] = max(seconds.get(key, 0.0), took)
    blocks = tuple(
        SpeedBlock(arm, 0.0, at_once, block, took) for (arm, block), took in seconds.items()
    )
    conditions = measured.conditions
    loads = (*conditions.speed_concurrencies, at_once)
    return replace(
        measured,
        conditions=replace(conditions, speed_concurrencies=loads),
        requests=(*measured.requests, *more),
        blocks=(*measured.blocks, *blocks),
    )


def with_references(measured: Report, lower: float, spread: float = 0.05) -> Report:
    """Every answer has a reference; the candidate's score lies `lower` below plain decoding's on
    average, and a prompt's difference varies by `spread`."""
    rng = np.random.default_rng(5)
    base = {prompt.id: float(rng.uniform(0.3, 0.6)) for prompt in measured.prompts}
    own = {prompt.id: float(rng.normal(-lower, spread)) for prompt in measured.prompts}
    return replace(
        measured,
        requests=tuple(
            replace(
                r,
                rouge_l_reference=base[r.prompt] + (own[r.prompt] if r.arm == "candidate" else 0.0),
            )
            if r.run == "acceptance"
            else r
            for r in measured.requests
        ),
    )


def drawn_too(
    measured: Report,
    temperature: float,
    rouge_l: float,
    itself: float,
    *,
    spread: float | None = None,  # of two answers of the candidate; None: as plain decoding's
    seeded: float | None = None,  # of the candidate with seeds to plain decoding; None: the same
) -> Report:
    """The acceptance runs at another temperature as well: texts part at tokens 2, 4, 6 and so on by
    the prompt, drafts' as `rouge_l` from plain decoding's and plain decoding's as `itself`. Where
    greedy, plain decoding alone is what it is in a batch."""
    places = {prompt.id: 2 * place for place, prompt in enumerate(measured.prompts, start=1)}

    def parted(request: RequestFigures, score: float, run: str = "acceptance") -> RequestFigures:
        parity = Parity(False, places[request.prompt], 0.25, score)
        return replace(request, temperature=temperature, run=run, parity=parity)

    more: list[RequestFigures] = []
    for request in measured.requests:
        if request.run == "acceptance" and request.arm != "none":
            more.append(parted(request, rouge_l))
            if request.arm == "candidate":
                own = itself if spread is None else spread
                more.append(parted(request, own, "again"))
                more.append(parted(request, itself if seeded is None else seeded, "seeded"))
        elif request.run == "acceptance":
            more += [replace(request, temperature=temperature), parted(request, itself, "again")]
    whole = changed(measured, "none", lambda r: replace(r, parity=EQUAL), run="speed")
    temperatures = (*measured.conditions.temperatures, temperature)
    conditions = replace(whole.conditions, temperatures=temperatures)
    return replace(whole, conditions=conditions, requests=(*whole.requests, *more))
