"""Simulated request streams with a known acceptance: beta-binomial over chained draft positions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from speculation.records import Counts

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
