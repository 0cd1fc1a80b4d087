"""The target over some rows of its cache: token ids in, states and logits out.

Knows the target, its cache, and which ids name tokens; knows nothing of drafts and requests.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from speculation.cache import RowCache
from speculation.target import Target


class Forward:
    """One engine's target with the cache that its rows share."""

    def __init__(
        self,
        target: Target,
        cache: RowCache,
        *,
        token_count: int,
        read: Sequence[int] = (),  # layers whose inputs are given beside the hidden states
    ) -> None:
        target.check_layers(read)
        self._target, self._cache, self._read = target, cache, tuple(read)
        self._token_count = token_count  # ids from here on name no token

    def states(
        self,
        tokens: Sequence[Sequence[int]],  # [B][T] what each row is fed
        starts: Sequence[int],  # [B] the position of each row's first
        rows: Sequence[int],  # [B]
        adapters: Sequence[str | None],  # [B]
    ) -> tuple[Tensor, Tensor | None]:
        """Hidden states [B, T, H], and what drafters read of them [B, T, LH], if any does."""
        ids = self._tensor(tokens)
        first = self._tensor(starts)
        positions = first[:, None] + torch.arange(ids.shape[1], device=first.device)
        return self._target.forward(ids, positions, self._cache, rows, adapters, self._read)

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., V] of hidden states [..., H]; -inf for ids that name no token."""
        logits = self._target.logits(hidden)
        if self._token_count < logits.shape[-1]:  # rows of the output layer that are no tokens
            logits[..., self._token_count :] = float("-inf")
        return logits

    def _tensor(self, values: Sequence[object]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=self._target.device)
