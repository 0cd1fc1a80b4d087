"""How fast an engine decodes with drafts beside without one, and beside others. Token ids only.

Runs are interleaved (plain, K = 1, K = 2, ..., and again in the reverse order), since a machine's
speed drifts; what is compared are ratios within one turn. As many prompts as are to be side by side
are asked at once, and one more whenever one is answered, so that nobody waits in a line.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import geometric_mean, median

from speculation.drafters import Drafter, NoDrafter
from speculation.engine import Engine
from speculation.records import Counts, pool
from speculation.sequence import Request
from speculation.target import Target

PLAIN = "plain"
Prompt = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """All prompts decoded once."""

    seconds: float
    emitted: int  # tokens
    latencies: tuple[float, ...]  # seconds to the last token, of each prompt
    first_tokens: tuple[float, ...]  # seconds to the first
    counts: Counts = Counts()


Way = Callable[[], Run]
Key = tuple[str, int | None]  # whose decoding, and its K; None: adapted


@dataclass(frozen=True, slots=True)
class Timing:
    """One way of decoding, over all turns."""

    name: str  # "plain", a draft's, or another decoder's
    draft_len: int | None  # 0 is plain decoding, None the K that the engine adapts itself
    concurrency: int  # prompts side by side
    tokens_per_second: float  # median of the turns, as the three below
    latency_seconds: float  # median of the prompts
    first_token_seconds: float  # likewise
    # Over our plain decoding of the same turn, one a turn:
    speedups: tuple[float, ...]  # tokens a second
    latency_ratios: tuple[float, ...]  # of each prompt to itself, their geometric mean
    first_token_ratios: tuple[float, ...]  # likewise
    counts: Counts = Counts()  # none of others'
    predicted: float | None = None  # S(K) from costs and hazards measured by the adapting engine

    @property
    def speedup(self) -> float:
        return median(self.speedups)


def bench(
    target: Target,
    drafters: Mapping[str, Drafter],  # each loaded for `concurrency` rows
    prompts: Sequence[Prompt],
    *,
    draft_lens: Sequence[int],
    max_tokens: int,
    concurrency: int = 1,
    turns: int = 5,
    stop_ids: frozenset[int] = frozenset(),
    others: Mapping[Key, Way] = {},
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> list[Timing]:
    """Decode `prompts` greedily: plainly, with each draft at each length and with an adapted K, and
    in all `others`' ways.

    Raises ValueError when a prompt and `max_tokens` exceed what a drafter was loaded for.
    """
    longest = max(map(len, prompts)) + max_tokens
    lens: list[int | None] = [*draft_lens, None]
    drafting = {(name, k): drafter for name, drafter in drafters.items() for k in lens}
    ours: dict[Key, Engine] = {
        (name, draft_len): Engine(
            target,
            {"bench": drafter},
            default="bench",
            draft_len=draft_len or 0,
            adaptive=draft_len is None,
            slots=concurrency,
            max_len=longest,
        )
        for (name, draft_len), drafter in {(PLAIN, 0): NoDrafter(), **drafting}.items()
    }
    ways: dict[Key, Way] = {
        key: partial(_decode, engine, prompts, max_tokens, stop_ids) for key, engine in ours.items()
    }
    ways |= others
    _decode(ours[PLAIN, 0], prompts[:1], max_tokens, stop_ids)  # the first forward sets things up
    runs = _interleaved(ways, turns, progress)
    plain = runs[PLAIN, 0]
    found = []
    for (name, draft_len), its in runs.items():
        rates = [run.emitted / run.seconds for run in its]
        adapting = ours.get((name, None))
        predicted = adapting.paces["bench"].speedups(concurrency, longest) if adapting else None
        found.append(
            Timing(
                name,
                draft_len,
                concurrency,
                tokens_per_second=median(rates),
                latency_seconds=median(median(run.latencies) for run in its),
                first_token_seconds=median(median(run.first_tokens) for run in its),
                speedups=_by_turn(
                    lambda run, to: run.emitted / run.seconds / (to.emitted / to.seconds),
                    *(its, plain),
                ),
                latency_ratios=_by_turn(
                    lambda run, to: _paired(run.latencies, to.latencies), its, plain
                ),
                first_token_ratios=_by_turn(
                    lambda run, to: _paired(run.first_tokens, to.first_tokens), its, plain
                ),
                counts=its[-1].counts,
                predicted=predicted[draft_len] if predicted and draft_len is not None else None,
            )
        )
    return found


def _by_turn(
    compare: Callable[[Run, Run], float], runs: Sequence[Run], plain: Sequence[Run]
) -> tuple[float, ...]:
    return tuple(compare(run, one) for run, one in zip(runs, plain, strict=True))


def _paired(seconds: Sequence[float], plain: Sequence[float]) -> float:
    """How much longer each prompt took than it did plainly, in the middle: a ratio."""
    return geometric_mean(one / other for one, other in zip(seconds, plain, strict=True))


def _interleaved(
    ways: Mapping[Key, Way],
    turns: int,
    progress: Callable[[int, int, str], None],
) -> dict[Key, list[Run]]:
    """Every way once a turn, there and back."""
    runs: dict[Key, list[Run]] = {key: [] for key in ways}
    order = list(ways)
    for turn in range(turns):
        for place, key in enumerate(order if turn % 2 == 0 else order[::-1]):
            runs[key].append(ways[key]())
            progress(turn * len(order) + place + 1, turns * len(order), "runs")
    return runs


def _decode(
    engine: Engine, prompts: Sequence[Prompt], max_tokens: int, stop_ids: frozenset[int]
) -> Run:
    asked, first, last = dict[str, float](), dict[str, float](), dict[str, float]()
    counts = []
    began = time.perf_counter()
    while len(last) < len(prompts):
        while len(asked) < len(prompts) and engine.running + engine.waiting < engine.slots:
            name = str(len(asked))
            asked[name] = time.perf_counter()
            engine.submit(Request(name, prompts[int(name)], max_tokens, stop_ids=stop_ids))
        for event in engine.step():
            now = time.perf_counter()
            if event.token_ids:
                first.setdefault(event.id, now)
            if event.counts is not None:
                last[event.id] = now
                counts.append(event.counts)
    spent = time.perf_counter() - began
    pooled = pool(counts)
    return Run(
        spent,
        pooled.emitted,
        tuple(last[name] - asked[name] for name in asked),
        tuple(first.get(name, last[name]) - asked[name] for name in asked),
        pooled,
    )
