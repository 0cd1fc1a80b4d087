"""How fast the engine decodes with a draft beside without one. Token ids only.

Runs are interleaved (plain, K = 1, K = 2, ..., and again in the reverse order), since a machine's
speed drifts; what is compared are ratios within one turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from speculation.drafters import Drafter, NoDrafter
from speculation.engine import Engine
from speculation.records import Counts, pool
from speculation.sequence import Request
from speculation.target import Target


@dataclass(frozen=True, slots=True)
class Timing:
    """One draft length over all turns."""

    draft_len: int | None  # 0 is plain decoding, None the K that the engine adapts itself
    tokens_per_second: float  # median of the turns
    speedups: tuple[float, ...]  # over plain decoding of the same turn, one a turn
    counts: Counts
    predicted: float | None = None  # S(K) from costs and hazards measured by the adapting engine

    @property
    def speedup(self) -> float:
        return median(self.speedups)


def bench(
    target: Target,
    drafter: Drafter,
    prompts: Sequence[tuple[int, ...]],
    *,
    draft_lens: Sequence[int],
    max_tokens: int,
    slots: int = 1,
    turns: int = 3,
    stop_ids: frozenset[int] = frozenset(),
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> list[Timing]:
    """Decode `prompts` greedily at each draft length, `slots` at a time; the first is plain, the
    last adapts K.

    Raises ValueError when a prompt and `max_tokens` exceed what the drafter was loaded for.
    """
    lens: list[int | None] = [0, *draft_lens, None]
    longest = max(map(len, prompts)) + max_tokens
    engines = {
        draft_len: Engine(
            target,
            {"bench": NoDrafter() if draft_len == 0 else drafter},
            default="bench",
            draft_len=draft_len or 0,
            adaptive=draft_len is None,
            slots=slots,
            max_len=longest,
        )
        for draft_len in lens
    }
    seconds: dict[int | None, list[float]] = {draft_len: [] for draft_len in lens}
    counts: dict[int | None, Counts] = {}
    _decode(engines[0], prompts[:1], max_tokens, stop_ids)  # the first forward sets things up
    for turn in range(turns):
        for place, draft_len in enumerate(lens if turn % 2 == 0 else lens[::-1]):
            began = time.perf_counter()
            counts[draft_len] = _decode(engines[draft_len], prompts, max_tokens, stop_ids)
            seconds[draft_len].append(time.perf_counter() - began)
            progress(turn * len(lens) + place + 1, turns * len(lens), "runs")
    predicted = engines[None].paces["bench"].speedups(slots, longest)
    return [_timing(draft_len, seconds, counts, predicted) for draft_len in lens]


def _timing(
    draft_len: int | None,
    seconds: Mapping[int | None, Sequence[float]],
    counts: Mapping[int | None, Counts],
    predicted: Sequence[float] | None,
) -> Timing:
    emitted = counts[draft_len].emitted
    plain_rate = [counts[0].emitted / each for each in seconds[0]]
    rates = [emitted / each for each in seconds[draft_len]]
    speedups = tuple(rate / plain for rate, plain in zip(rates, plain_rate, strict=True))
    known = predicted[draft_len] if predicted and draft_len is not None else None
    return Timing(draft_len, median(rates), speedups, counts[draft_len], known)


def _decode(
    engine: Engine, prompts: Sequence[tuple[int, ...]], max_tokens: int, stop_ids: frozenset[int]
) -> Counts:
    for number, ids in enumerate(prompts):
        engine.submit(Request(str(number), ids, max_tokens, stop_ids=stop_ids))
    found = []
    while not engine.idle:
        found += [event.counts for event in engine.step() if event.counts is not None]
    return pool(found)
