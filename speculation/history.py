"""What a request's own past does to its logits: penalties, bias, bans and the shortest answer.

Each of a round's positions sees the prompt, what was emitted, and the tokens drafted before it.
Drafted tokens are counted for the round alone and emitted ones when they are committed, so that a
rejected draft leaves nothing behind. Token ids only; `reference` says the same in plain lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import torch
from torch import Tensor

from speculation.sampling import Sampling


class Past:
    """One request's sampling and what it has seen. Tensors are made only for what it asked for."""

    def __init__(
        self,
        sampling: Sampling,
        prompt_ids: Sequence[int],
        *,
        vocab_size: int,
        stop_ids: frozenset[int] = frozenset(),
        device: torch.device | None = None,
    ) -> None:
        self.sampling = sampling
        self.emitted = 0  # tokens
        # A configuration may name an end that no logit has.
        stops = [token for token in sorted(stop_ids) if token < vocab_size]
        self._stops = torch.tensor(stops, dtype=torch.long, device=device)
        # Of each token: what is added to its logit, -inf for what can never be.
        self._added: Tensor | None = None
        if sampling.logit_bias or sampling.banned or sampling.allowed is not None:
            added = torch.zeros(vocab_size, dtype=torch.float32, device=device)
            for token, bias in sampling.logit_bias:
                added[token] += bias
            if sampling.allowed is not None:
                refused = torch.ones(vocab_size, dtype=torch.bool, device=device)
                refused[sorted(sampling.allowed)] = False
                added[refused] = float("-inf")
            added[sorted(sampling.banned)] = float("-inf")
            self._added = added
        self._in_prompt: Tensor | None = None
        if sampling.penalised:
            self._in_prompt = torch.zeros(vocab_size, dtype=torch.bool, device=device)
            self._in_prompt[list(prompt_ids)] = True
            self._counts = torch.zeros(vocab_size, dtype=torch.float32, device=device)

    def copied(self) -> Past:
        """The same, apart: whatever is done to the copy changes nothing here."""
        twin = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(twin, name, value.clone())
        return twin

    def extend(self, ids: Sequence[int]) -> None:
        """`ids` were emitted."""
        self.emitted += len(ids)
        if self._in_prompt is not None and ids:
            tokens = torch.tensor(ids, device=self._counts.device)
            self._counts.index_add_(0, tokens, torch.ones_like(tokens, dtype=torch.float32))

    def shape(
        self, logits: Tensor, drafted: Sequence[int], first: int, columns: Tensor | None
    ) -> Tensor:
        """`logits` [T, V] float32 as the request wants them; position t sees drafted[: first + t].

        `columns` are the token ids of the logits' columns where these are not all of them.
        """
        sampling, positions = self.sampling, range(len(logits))

        def these(values: Tensor) -> Tensor:
            return values if columns is None else values[columns]

        if self._added is not None:
            logits = logits + these(self._added)
        short = [t for t in positions if self.emitted + first + t < sampling.min_tokens]
        if short and len(self._stops):
            stops = self._stops
            if columns is not None:
                stops = torch.isin(columns, self._stops).nonzero()[:, 0]
            logits = logits.clone()
            logits[: len(short), stops] = float("-inf")
        if self._in_prompt is not None:
            counts = these(self._counts_at(drafted, first, len(logits)).T).T
            emitted = counts > 0
            if sampling.repetition_penalty != 1:
                penalty = sampling.repetition_penalty
                repeated = torch.where(logits > 0, logits / penalty, logits * penalty)
                logits = torch.where(emitted | these(self._in_prompt), repeated, logits)
            logits = logits - sampling.frequency_penalty * counts
            logits = logits - sampling.presence_penalty * emitted
        return logits

    def _counts_at(self, drafted: Sequence[int], first: int, length: int) -> Tensor:
        """How often each token stands before each of `length` positions, [length, V]."""
        counts = self._counts.repeat(length, 1)
        for place, token in enumerate(drafted[: first + length - 1]):
            counts[max(place + 1 - first, 0) :, token] += 1
        return counts


def shaped(
    logits: Tensor,  # [B, T, V]
    pasts: Sequence[Past],
    drafted: Sequence[Sequence[int]],  # of each row, in this round
    *,
    first: int = 0,  # position t of a row sees drafted[: first + t]
    columns: Tensor | None = None,  # token ids of the logits' columns; None: all, in order
) -> Tensor:  # [B, T, V]; the same tensor where no row asked for anything
    """The logits from which each row's distribution is made."""
    rows = [row for row, past in enumerate(pasts) if past.sampling.shaped]
    if not rows:
        return logits
    changed = logits.to(torch.float32, copy=True)
    for row in rows:
        changed[row] = pasts[row].shape(changed[row], drafted[row], first, columns)
    return changed
