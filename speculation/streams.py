"""Randomness by key: every draw of a request follows from its seed and its place alone.

So a restart, the batch mates, and the draws of other rounds change nothing, and two choices of one
request differ. Knows distributions and keys; knows nothing of models.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass

import torch
from numpy.random import SFC64, Generator
from torch import Tensor

BITS = 52  # of a uniform: exact in float64, and below 1 after every rounding here


@dataclass(frozen=True, slots=True)
class Key:
    """Whose draws these are: a request's seed, and which of its n choices."""

    seed: int
    choice: int = 0

    def _digest(self, *place: object) -> int:
        text = "/".join(map(str, (self.seed, self.choice, *place)))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")

    def uniform(self, committed: int, position: int, purpose: str) -> float:
        """In [0, 1). Keyed by the tokens committed at the round's start as well as by position: by
        the position alone, a draw that a rejected draft used up would be used again."""
        return (self._digest(committed, position, purpose) >> (64 - BITS)) / (1 << BITS)

    def exponentials(self, position: int, width: int) -> Tensor:
        """Exponential noise [width] float64 of the `position`-th token of the sequence, on the CPU.

        Keyed by the position alone: draft and target are to meet the same noise there. Not to be
        written to.
        """
        return _exponentials(self._digest(position, "exponential"), width)


# Draft and target meet the same noise within a round; 25 MB at 49,152 tokens.
@functools.lru_cache(maxsize=64)
def _exponentials(seed: int, width: int) -> Tensor:
    # numpy's are drawn four times as fast as torch's (0.4 ms for 49,152 on one core).
    return torch.from_numpy(Generator(SFC64(seed)).standard_exponential(width))


def draw(probs: Tensor, uniforms: Tensor) -> Tensor:
    """Tokens [...] of the distributions `probs` [..., V], by inversion at `uniforms` [...].

    Never a token of probability 0: it adds nothing to the cumulated mass that is searched.
    """
    cumulated = probs.double().cumsum(dim=-1)
    wanted = uniforms.to(cumulated)[..., None] * cumulated[..., -1:]
    found = torch.searchsorted(cumulated, wanted, right=True)[..., 0]
    # The product may round up to the whole mass; the last token with mass is meant then.
    last = torch.searchsorted(cumulated, cumulated[..., -1:].contiguous())[..., 0]
    return torch.minimum(found, last)


def race(probs: Tensor, noise: Tensor) -> Tensor:
    """The tokens [...] that win the exponential race `noise / probs`, both [..., V].

    A token wins with its probability (Gumbel-max in other words). Draft and target that race with
    the same noise mostly agree, and the winner under the target does not depend on the draft:
    Daliri, Musco and Suresh 2024 (arXiv 2408.07978).
    """
    return (probs.double() / noise.to(probs.device)).max(dim=-1).indices
