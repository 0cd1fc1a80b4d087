"""Simulated requests with a known acceptance: beta-binomial over chained draft positions.

What detectors are put to the proof with (`proof.py`). The same scenario and seed give the same
requests on every machine. Knows what is true of a stream; knows no detector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from speculation.records import Counts, Exchange

Shift = NDArray[np.float64]  # of the mean, for each request

HEALTHY = (0.70,) * 8
HEAD = (0.78, 0.70, 0.62, 0.56, 0.52, 0.49, 0.47, 0.45)  # a head's hazards fall along positions


def stream(
    requests: int,
    *,
    seed: int,
    hazards: Sequence[float] = HEALTHY,
    draft_len: int = 4,
    tokens: int = 48,
    correlation: float = 0.10,
    shift: Shift | float = 0.0,
    length_follows_acceptance: bool = False,
) -> list[Counts]:
    """`requests` requests of about `tokens` emitted tokens each.

    A request's first hazard is drawn from a beta distribution whose intra-request correlation is
    `correlation`; later positions keep their ratio to the first. `shift` is added to every mean.
    """
    generator = np.random.default_rng(seed)
    mean = np.clip(hazards[0] + np.broadcast_to(shift, (requests,)), 1e-9, 1 - 1e-9)
    concentration = 1 / correlation - 1
    first = generator.beta(mean * concentration, (1 - mean) * concentration)
    ratios = np.asarray(hazards[:draft_len]) / hazards[0]
    survival = np.cumprod(first[:, None] * ratios[None, :], axis=1)
    wanted = np.full(requests, tokens)
    if length_follows_acceptance:
        wanted = np.clip((tokens * (first / hazards[0]) ** 2).astype(int), 4, 2 * tokens)
    most = int(wanted.max())
    accepted = np.zeros((requests, most), dtype=np.int16)
    draws = generator.random((requests, most))
    for position in range(draft_len):
        accepted += draws < survival[:, position, None]
    emitted_before = np.cumsum(accepted + 1, axis=1) - accepted - 1
    left = wanted[:, None] - 1 - emitted_before  # prefill emitted the first token
    ran = left > 0
    cut = np.minimum(accepted, left)  # a block cut by the end is censored
    lengths = np.minimum(draft_len, np.maximum(left, 0))
    judged = np.stack(
        [(ran & (cut >= j) & (lengths > j)).sum(axis=1) for j in range(draft_len)], axis=1
    )
    kept = np.stack([(ran & (cut > j)).sum(axis=1) for j in range(draft_len)], axis=1)
    rounds, drafted = ran.sum(axis=1), lengths.sum(axis=1)
    return [
        Counts(int(r), 1, int(d), int(n), tuple(map(int, j)), tuple(map(int, a)))
        for r, d, n, j, a in zip(rounds, drafted, wanted, judged, kept, strict=True)
    ]


LEAD = 1200  # healthy requests before anything happens: a baseline is learnt from the first 1,000
SHORT_LEAD = 200  # the least that one is learnt from
WAVE, WAVE_REQUESTS = 0.02, 5000  # half its height, in alpha-hat; requests in a day
MIX = (("short", 0.75), ("long", 0.50))  # adapters and what is accepted for each
SLICES, SLICE_FALL = 10, 0.30  # adapters of which one falls, and by how much
PACED_OFF = 12  # requests of a dead draft until an adaptive K is 0


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is true of a stream."""

    name: str
    kind: Literal["healthy", "fall", "draft_len", "wave", "mix", "slice", "paced off"]
    requests: int  # after the lead
    correlation: float = 0.10  # of acceptances within a request
    fall: float = 0.0  # of alpha-hat, from the lead on
    draft_len: int = 4  # from the lead on
    lead: int = LEAD  # requests before


def scenarios(
    correlations: Sequence[float] = (0.05, 0.10, 0.20), *, healthy: int = 20_000, after: int = 3000
) -> Iterator[Scenario]:
    """Those of the proof."""
    for correlation in correlations:
        yield Scenario("healthy", "healthy", healthy, correlation)
        for fall in (0.05, 0.10, 0.20):
            yield Scenario(f"fall {fall:.2f}", "fall", after, correlation, fall)
        yield Scenario("collapse", "fall", after, correlation, HEALTHY[0])
    for fall in (0.10, 0.20, HEALTHY[0]):
        name = "collapse" if fall == HEALTHY[0] else f"fall {fall:.2f}"
        yield Scenario(f"{name} after 200", "fall", after, fall=fall, lead=SHORT_LEAD)
    yield Scenario("healthy after 200", "healthy", healthy, lead=SHORT_LEAD)
    yield Scenario("collapse, K adapts to 0", "paced off", after, fall=HEALTHY[0])
    for draft_len in (1, 2, 8):
        yield Scenario(f"K from 4 to {draft_len}", "draft_len", 2 * after, draft_len=draft_len)
    yield Scenario("daily wave", "wave", healthy)
    yield Scenario("mix shift alone", "mix", after)
    yield Scenario("one slice of ten", "slice", after, fall=SLICE_FALL)


def requests_of(scenario: Scenario, seed: int) -> Iterator[Exchange]:
    """The lead, and what follows it."""
    lead, rest = 2 * seed, 2 * seed + 1
    count, correlation = scenario.requests, scenario.correlation
    if scenario.kind == "mix":
        yield from _mixed(scenario, lead, rest)
        return
    if scenario.kind == "slice":
        yield from _sliced(scenario, lead, rest)
        return
    hazards = HEAD if scenario.kind == "draft_len" else HEALTHY
    before = stream(scenario.lead, seed=lead, hazards=hazards, correlation=correlation)
    shift: Shift | float = -scenario.fall
    if scenario.kind == "wave":
        shift = WAVE * np.sin(np.arange(count) * 2 * np.pi / WAVE_REQUESTS)
    after = stream(
        count,
        seed=rest,
        hazards=hazards,
        draft_len=scenario.draft_len,
        correlation=correlation,
        shift=shift,
    )
    for number, counts in enumerate([*before, *after]):
        off = scenario.kind == "paced off" and number >= scenario.lead + PACED_OFF
        if off:
            counts = Counts(plain_forwards=counts.emitted, emitted=counts.emitted)
        yield _exchange(number, counts, pace="off_by_rejection" if off else None)


def _mixed(scenario: Scenario, lead: int, rest: int) -> Iterator[Exchange]:
    """Two adapters whose shares change places; each is accepted as ever."""
    total = scenario.lead + scenario.requests
    generator = np.random.default_rng(lead)
    streams = [
        iter(stream(total, seed=seed, hazards=(alpha,) * 4, correlation=scenario.correlation))
        for seed, (_, alpha) in zip((lead, rest), MIX, strict=True)
    ]
    for number in range(total):
        which = int(generator.random() < (0.2 if number < scenario.lead else 0.8))
        yield _exchange(number, next(streams[which]), adapter=MIX[which][0])


def _sliced(scenario: Scenario, lead: int, rest: int) -> Iterator[Exchange]:
    """Ten adapters with a tenth of the requests each, of which the first falls."""
    correlation = scenario.correlation
    before = stream(scenario.lead, seed=lead, correlation=correlation)
    shift = np.where(np.arange(scenario.requests) % SLICES == 0, -scenario.fall, 0.0)
    after = stream(scenario.requests, seed=rest, correlation=correlation, shift=shift)
    for number, counts in enumerate([*before, *after]):
        yield _exchange(number, counts, adapter=f"a{number % SLICES}")


def _exchange(
    number: int, counts: Counts, *, adapter: str | None = None, pace: str | None = None
) -> Exchange:
    return Exchange(
        id=f"r{number}",
        pair="p-1",
        release="d" * 64,
        drafter="head",
        draft_len=4,
        started=float(number),  # one a second
        prompt_tokens=20,
        prompt_tokens_cached=0,
        counts=counts,
        queue_seconds=0.0,
        prefill_seconds=0.01,
        decode_seconds=0.5,
        outcome="stop",
        adapter=adapter,
        pace=pace,
    )
