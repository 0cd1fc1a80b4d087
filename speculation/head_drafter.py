"""Drafts with an EAGLE-3 style head over the target's states of committed tokens.

Knows the head's step, the target's embeddings and which states of each row the head has not read
yet. Token ids only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from speculation.cache import MOST_DRAFTED
from speculation.draws import Draws
from speculation.head import Head
from speculation.proposal import Ask, Proposal, among

CHUNK = 256  # states of one row that are read, or folded to a third of their size, together


@dataclass(slots=True)
class _Row:
    """The target's states that the head has not read, in order: folded ones, then raw ones."""

    origin: int  # position of the first state that was seen; the cache's slot 0
    start: int  # position of the first state that is unread
    folded: list[Tensor] = field(default_factory=list)  # [T, H], through the head's `fc`
    raw: list[Tensor] = field(default_factory=list)  # [T, 3H]
    last: Tensor | None = None  # [1, H] folded state at start - 1

    @property
    def unread(self) -> int:
        return sum(map(len, self.folded)) + sum(map(len, self.raw))


class HeadDrafter:
    """All asked rows side by side, each with its own row of the cache.

    States wait until their row asks, so a head costs next to nothing at K = 0; what waits is at
    most a row's length, as wide as one hidden state. `greedy_drafts` takes the likeliest token
    whatever a request's temperature; such drafts are one-hot. Beyond the head's own context, and
    where no state was ever seen, a row gets no draft.

    A row's first state may stand anywhere (its prompt's beginning came from a prefix cache): the
    head then sees the context from there on. Its positions are relative, so that is all it loses.
    """

    kind = "head"

    def __init__(
        self,
        head: Head,
        embedding: Tensor,  # [V, H], the target's
        *,
        rows: int,
        max_len: int,
        greedy_drafts: bool = False,
    ) -> None:
        self.head, self.embedding, self.greedy_drafts = head, embedding, greedy_drafts
        self.longest = min(max_len, head.config.max_position_embeddings)
        self.cache = head.new_cache(rows=rows, max_len=self.longest)
        self.token_ids = head.token_ids
        self._rows: dict[int, _Row] = {}

    @property
    def feature_layers(self) -> tuple[int, ...]:
        return tuple(self.head.config.eagle_aux_hidden_state_layer_ids)

    def observe(self, row: int, start: int, features: Tensor | None) -> None:
        assert features is not None
        if start >= self.longest:
            return  # never to be read
        known = self._rows.get(row)
        if known is None:
            known = self._rows[row] = _Row(start, start)
        assert known.start + known.unread == start
        # A row of a batch's states would keep the states of the whole batch.
        known.raw.append(features.clone())
        if sum(map(len, known.raw)) >= CHUNK:
            self._fold([known])

    def unread(self, row: int, length: int) -> int:
        known = self._rows.get(row)
        # Beyond its context it will never draft again.
        return 0 if known is None or length > self.longest else known.unread

    def propose(self, asks: Sequence[Ask]) -> Proposal:
        def able(ask: Ask) -> bool:
            return ask.length > 0 and len(ask.context) <= self.longest and ask.row in self._rows

        return among(asks, able, self._propose)

    def _propose(self, asks: Sequence[Ask]) -> Proposal:
        rows = [ask.row for ask in asks]
        steps = min(max(ask.length for ask in asks), MOST_DRAFTED)
        draws = Draws(
            asks,
            vocab_size=len(self.embedding),
            token_ids=self.token_ids,
            greedy=self.greedy_drafts,
        )
        state, slots = self._catch_up(asks)

        def after(step: int, ids: Tensor) -> Tensor:
            nonlocal state
            embedded, places = self.embedding[ids][:, None], (slots + step)[:, None]
            state = self.head.step(embedded, state[:, None], places, self.cache, rows)[:, 0]
            return self.head.logits(state)

        draws.run(self.head.logits(state), steps, after)
        proposal = draws.proposal()
        for place in range(len(rows)) if proposal.fault else proposal.broken:
            self._clear(rows[place])
        return proposal

    def _catch_up(self, asks: Sequence[Ask]) -> tuple[Tensor, Tensor]:
        """Read every committed state; the last one's output [B, H] and its slot [B].

        A row that is far behind (its prompt) is read alone first, so that the others are not
        padded to its length.
        """
        known = [self._rows[ask.row] for ask in asks]
        self._fold(known)
        for ask, row in zip(asks, known, strict=True):
            while row.unread > MOST_DRAFTED + 1:
                self._read([ask], min(CHUNK, row.unread - 1))
            if not row.unread:  # asked again without a new token: the last state is read anew
                assert row.last is not None
                row.folded, row.start = [row.last], row.start - 1
        return self._read(asks, MOST_DRAFTED + 1)

    def _read(self, asks: Sequence[Ask], most: int) -> tuple[Tensor, Tensor]:
        """Read the next `most` folded states of each row, or all it has, in one forward."""
        device = self.embedding.device
        starts, states, tokens = [], [], []
        for ask in asks:
            row = self._rows[ask.row]
            joined = row.folded[0] if len(row.folded) == 1 else torch.cat(row.folded)
            state, left = joined[:most], joined[most:]
            starts.append(row.start - row.origin)
            states.append(state)
            # Beside the state at a position goes the token after it.
            tokens.append(ask.context[row.start + 1 : row.start + 1 + len(state)])
            assert len(tokens[-1]) == len(state)
            row.start += len(state)
            row.last, row.folded = state[-1:], [left] if len(left) else []
        width = max(map(len, states))
        padded = states[0].new_zeros((len(asks), width, states[0].shape[-1]))
        for place, state in enumerate(states):
            padded[place, : len(state)] = state
        ids = torch.tensor([[*each, *[0] * (width - len(each))] for each in tokens], device=device)
        slots = torch.tensor(starts, device=device)[:, None] + torch.arange(width, device=device)
        output = self.head.step(
            self.embedding[ids], padded, slots, self.cache, [ask.row for ask in asks]
        )
        row_index = torch.arange(len(asks), device=device)
        last = torch.tensor(list(map(len, states)), device=device) - 1
        return output[row_index, last], slots[row_index, last]

    def _fold(self, rows: Sequence[_Row]) -> None:
        """Take all raw states of `rows` through the head's `fc`, in one product."""
        raw = [part for row in rows for part in row.raw]
        if not raw:
            return
        folded = self.head.fc(torch.cat(raw)).split([sum(map(len, row.raw)) for row in rows])
        for row, states in zip(rows, folded, strict=True):
            if row.raw:
                row.folded.append(states)
                row.raw = []

    def _clear(self, row: int) -> None:
        """Forget a row whose numbers were not finite: 0 times NaN is NaN, also where masked."""
        self.forget(row)
        for stored in (*self.cache.keys, *self.cache.values):
            stored[row] = 0

    def move(self, source: int, row: int) -> None:
        self.forget(row)
        known = self._rows.pop(source, None)
        if known is not None:
            self._rows[row] = known
            self.cache.move(source, row, known.start - known.origin)

    def forget(self, row: int) -> None:
        self._rows.pop(row, None)
