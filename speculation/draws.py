"""The drafted tokens of one round: drawn step by step, remembered with the law they came from.

A row ends before its first step that is not finite, all rows before a step that raises: tokens
that were drawn are never taken back for what came of them. Knows logits, laws and keyed randomness;
the models that make the logits are the drafters' business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from speculation.breaker import FaultKind
from speculation.draft_law import draft_law, draft_logits
from speculation.faults import named
from speculation.proposal import Ask, Proposal
from speculation.streams import Key, draw, race


class Draws:
    """One round of `asks`: `draw` each step's tokens, or `run` them all, then take the `proposal`.

    Three kinds of rows, as verification has them: greedy ones, and all with `greedy` set, take the
    likeliest token; coupled ones the winner of the race with the noise that the target will meet;
    the others are drawn from their request's law. Only these bring a law; the rest is one-hot.
    """

    def __init__(
        self,
        asks: Sequence[Ask],
        *,
        vocab_size: int,  # V, the width of the target's logits
        token_count: int | None = None,  # ids from here on name no token; None: all do
        token_ids: Tensor | None = None,  # [v] target id of each draft id; None: the same ids
        greedy: bool = False,
    ) -> None:
        self._asks, self._vocab_size, self._token_ids = asks, vocab_size, token_ids
        self._token_count = vocab_size if token_count is None else token_count
        self._keys = [Key(ask.seed, ask.choice) for ask in asks]
        self._random = [
            place for place, ask in enumerate(asks) if not (greedy or ask.sampling.greedy)
        ]
        # Which of the random rows are drawn, so that their laws are part of the proposal.
        self._free = [
            index for index, place in enumerate(self._random) if not asks[place].sampling.coupled
        ]
        self._remembers = any(ask.past and ask.past.sampling.shaped for ask in asks)
        self._drafted: list[list[int]] = [[] for _ in asks]  # kept where a past needs them
        self._ids: list[Tensor] = []  # per step [B]
        self._peaks: list[Tensor] = []  # per step [B], the largest logit: NaN if any is
        self._laws: list[Tensor] = []  # per step [free rows, v]
        self._fault: tuple[FaultKind, str] | None = None

    def run(self, first: Tensor, steps: int, after: Callable[[int, Tensor], Tensor]) -> None:
        """Draw `steps` tokens of every row: from the logits `first` [B, v], then from those that
        `after(step, ids)` gives behind the `step`-th tokens, counted from 1.

        What is raised once tokens are drawn ends the run and is told in the proposal.
        """
        ids = self.draw(first)
        try:
            for step in range(1, steps):
                ids = self.draw(after(step, ids))
        except Exception as error:  # it may be these tokens' doing, so that they must stay
            self._fault = named(error)

    def draw(self, logits: Tensor) -> Tensor:
        """The next token of every row, target ids [B], from its logits [B, v]."""
        if self._token_ids is None:
            logits = logits[:, : self._token_count]  # what the target cannot say has no mass
        columns = self._token_ids
        if columns is None and logits.shape[-1] < self._vocab_size:
            columns = torch.arange(logits.shape[-1], device=logits.device)
        logits = draft_logits(logits, self._asks, self._drafted, columns)
        peaks, chosen = logits.max(dim=-1)  # torch: the first of equal maxima
        self._peaks.append(peaks)
        if self._random:
            chosen[self._random] = self._draw(logits[self._random], peaks[self._random])
        ids = chosen if self._token_ids is None else self._token_ids[chosen]
        self._ids.append(ids)
        if self._remembers:
            for drafted, token in zip(self._drafted, ids.tolist(), strict=True):
                drafted.append(token)
        return ids

    def _draw(self, logits: Tensor, peaks: Tensor) -> Tensor:
        """Draft ids [random rows] from their laws."""
        finite = peaks.isfinite()
        if not bool(finite.all()):
            logits = logits.masked_fill(~finite[:, None], 0.0)  # drawn, and cut off in `proposal`
        law = draft_law(logits, [self._asks[place] for place in self._random])
        step = len(self._ids)
        chosen = torch.empty(len(law), dtype=torch.long, device=law.device)
        for index, place in enumerate(self._random):
            if index not in self._free:
                chosen[index] = self._race(law[index], place, step)
        if self._free:
            free = law[self._free]
            self._laws.append(free)
            uniforms = [
                self._keys[place].uniform(len(self._asks[place].context), step, "draft")
                for place in (self._random[index] for index in self._free)
            ]
            chosen[self._free] = draw(free, torch.tensor(uniforms, dtype=torch.float64))
        return chosen

    def _race(self, law: Tensor, place: int, step: int) -> Tensor:
        position = len(self._asks[place].context) + step
        noise = self._keys[place].exponentials(position, self._vocab_size).to(law.device)
        return race(law, noise[: len(law)] if self._token_ids is None else noise[self._token_ids])

    def proposal(self) -> Proposal:
        """Each row's tokens, as many as it asked for, or those before it was no longer finite."""
        steps = len(self._ids)  # a step that raised may have left a peak and a law
        finite = torch.stack(self._peaks[:steps], dim=1).isfinite().long()
        sound: list[int] = finite.cumprod(dim=1).sum(dim=1).tolist()
        ids = [
            row[: min(ask.length, fine)]
            for row, ask, fine in zip(self.fed(), self._asks, sound, strict=True)
        ]
        broken = tuple(place for place, fine in enumerate(sound) if fine < steps)
        if not self._free:
            return Proposal(ids, None, broken, fault=self._fault)
        probs: list[Tensor | None] = [None] * len(ids)
        for place, index in enumerate(self._free):
            row = self._random[index]
            if ids[row]:
                laws = [law[place] for law in self._laws[: len(ids[row])]]
                probs[row] = self._wide(torch.stack(laws))
        return Proposal(ids, probs, broken, fault=self._fault)

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
