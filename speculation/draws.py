"""The drafted tokens of one round: drawn step by step, remembered with the law they came from.

Knows logits, laws and random streams; the models that make the logits are the drafters' business.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from speculation.draft_law import draft_law
from speculation.proposal import Ask, Proposal
from speculation.sampling import draw, stream


class Draws:
    """One round of `asks`: `draw` each step's tokens, then take the `proposal`.

    A row is drawn from its request's law, or, if the request is greedy or `greedy` is set, takes
    the likeliest token and is one-hot; [K, V] laws are made only of rows that are drawn.
    """

    def __init__(
        self,
        asks: Sequence[Ask],
        *,
        vocab_size: int,  # V, the target's
        token_ids: Tensor | None = None,  # [v] target id of each draft id; None: the same ids
        greedy: bool = False,
    ) -> None:
        self._asks, self._vocab_size, self._token_ids = asks, vocab_size, token_ids
        self._drawn = [
            place for place, ask in enumerate(asks) if not (greedy or ask.sampling.greedy)
        ]
        drawn = [asks[place] for place in self._drawn]
        self._streams = [stream(ask.seed, len(ask.context), "draft") for ask in drawn]
        self._drafted: list[list[int]] = [[] for _ in drawn]  # of the drawn rows
        self._ids: list[Tensor] = []  # per step [B]
        self._peaks: list[Tensor] = []  # per step [B], the largest logit: NaN if any is
        self._laws: list[Tensor] = []  # per step [drawn rows, v]

    def draw(self, logits: Tensor) -> Tensor:
        """The next token of every row, target ids [B], from its logits [B, v]."""
        if self._token_ids is None:
            logits = logits[:, : self._vocab_size]  # what the target cannot say has no mass
        peaks, chosen = logits.max(dim=-1)  # torch: the first of equal maxima
        self._peaks.append(peaks)
        if self._drawn:
            chosen[self._drawn] = self._draw(logits[self._drawn], peaks[self._drawn])
        ids = chosen if self._token_ids is None else self._token_ids[chosen]
        self._ids.append(ids)
        if self._drawn:
            for drafted, token in zip(self._drafted, ids[self._drawn].tolist(), strict=True):
                drafted.append(token)
        return ids

    def _draw(self, logits: Tensor, peaks: Tensor) -> Tensor:
        """Draft ids [drawn rows] from their laws."""
        finite = peaks.isfinite()
        if not bool(finite.all()):
            logits = logits.masked_fill(~finite[:, None], 0.0)  # drawn, and dropped in `proposal`
        asks = [self._asks[place] for place in self._drawn]
        law = draft_law(logits, asks, self._drafted, self._token_ids)
        self._laws.append(law)
        return draw(law, self._streams)

    def proposal(self) -> Proposal:
        """Each row's tokens, as many as it asked for; of rows that were not finite none."""
        finite = torch.stack(self._peaks, dim=1).isfinite().all(dim=1).tolist()
        ids = [
            row[: ask.length] if fine else []
            for row, ask, fine in zip(self.fed(), self._asks, finite, strict=True)
        ]
        broken = tuple(place for place, fine in enumerate(finite) if not fine)
        if not self._drawn:
            return Proposal(ids, None, broken)
        probs: list[Tensor | None] = [None] * len(ids)
        for index, place in enumerate(self._drawn):
            if ids[place]:
                laws = [law[index] for law in self._laws[: len(ids[place])]]
                probs[place] = self._wide(torch.stack(laws))
        return Proposal(ids, probs, broken)

    def fed(self) -> list[list[int]]:
        """All tokens that were drawn, also those beyond what a row asked for."""
        rows: list[list[int]] = torch.stack(self._ids, dim=1).tolist()
        return rows

    def _wide(self, law: Tensor) -> Tensor:
        """A law [T, v] over the target's vocabulary [T, V]."""
        if self._token_ids is None:
            return pad(law, (0, self._vocab_size - law.shape[-1]))
        wide = law.new_zeros((len(law), self._vocab_size))
        wide[:, self._token_ids] = law
        return wide
