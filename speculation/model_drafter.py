"""Drafts with a small causal language model that has a cache of its own.

Knows a loaded model's forward and which committed tokens its cache holds; knows nothing of the
target but its vocabulary's size. Token ids only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from speculation.cache import MOST_DRAFTED, ROOM
from speculation.draws import Draws
from speculation.proposal import Ask, DraftError, Proposal, among
from speculation.target import Target

CHUNK = 256  # tokens of one row that are read in one forward
PADDING = 1024  # rows that one of two models with the same tokens may have more than the other


@dataclass(slots=True)
class _Held:
    """What the cache holds of a row."""

    length: int  # committed tokens
    drafted: list[int] = field(default_factory=list)  # fed after them, perhaps rejected since


class ModelDrafter:
    """All asked rows side by side, each with its own row of the cache.

    A row's prompt is read when the row first asks: at K = 0 a draft costs no forward. After a round
    the cache keeps what was committed of what it was fed; rejected tokens are written over, and a
    last drafted token that was accepted, which was never fed, is read with the bonus.

    Beyond the draft's own context a row gets no draft. `greedy_drafts` takes the likeliest token
    whatever a request's temperature; such drafts are one-hot. Raises DraftError for a draft whose
    vocabulary cannot be the target's (of `vocab_size` logits).
    """

    kind = "model"
    feature_layers: tuple[int, ...] = ()

    def __init__(
        self,
        draft: Target,
        *,
        vocab_size: int,
        rows: int,
        max_len: int,
        token_count: int | None = None,  # target ids from here on name no token; None: all do
        greedy_drafts: bool = False,
    ) -> None:
        wide, narrow = max(draft.vocab_size, vocab_size), min(draft.vocab_size, vocab_size)
        if wide > narrow and wide - narrow >= min(PADDING, wide // 8):
            raise DraftError(
                f"the draft has {draft.vocab_size} tokens, the target {vocab_size}: that is more "
                "than padding; use a draft with the target's own tokenizer"
            )
        self.draft, self.greedy_drafts = draft, greedy_drafts
        self.vocab_size, self.token_count = vocab_size, token_count
        context = getattr(draft.config, "max_position_embeddings", None) or max_len + MOST_DRAFTED
        # Shorter rows of a batch are fed along with longer ones, up to K positions too far.
        self.longest = min(max_len, context - MOST_DRAFTED)
        if draft.architecture.longest is not None:
            self.longest = min(self.longest, draft.architecture.longest - ROOM)
        if self.longest < 1:
            raise DraftError(
                f"the draft's context is {context} tokens: wanted more than {MOST_DRAFTED}"
            )
        self.cache = draft.new_cache(rows=rows, max_len=self.longest)
        self._held: dict[int, _Held] = {}

    def observe(self, row: int, start: int, features: Tensor | None) -> None:
        pass

    def unread(self, row: int, length: int) -> int:
        if length > self.longest:
            return 0  # it will never draft for it again
        held = self._held.get(row)
        return length if held is None else max(length - held.length, 0)

    def propose(self, asks: Sequence[Ask]) -> Proposal:
        def able(ask: Ask) -> bool:
            return ask.length > 0 and len(ask.context) <= self.longest

        return among(asks, able, self._propose)

    def _propose(self, asks: Sequence[Ask]) -> Proposal:
        rows = [ask.row for ask in asks]
        steps = min(max(ask.length for ask in asks), MOST_DRAFTED)
        draws = Draws(
            asks,
            vocab_size=self.vocab_size,
            token_count=self.token_count,
            greedy=self.greedy_drafts,
        )
        first = self._catch_up(asks)
        positions = self._tensor([len(ask.context) - 1 for ask in asks])

        def after(step: int, ids: Tensor) -> Tensor:
            hidden = self._forward(ids[:, None], (positions + step)[:, None], rows)
            return self.draft.logits(hidden[:, 0])

        draws.run(first, steps, after)
        proposal = draws.proposal()
        for ask, drafted in zip(asks, draws.fed(), strict=True):
            self._held[ask.row] = _Held(len(ask.context), drafted[: steps - 1])
        for place in range(len(rows)) if proposal.fault else proposal.broken:
            self.forget(rows[place])
        return proposal

    def _catch_up(self, asks: Sequence[Ask]) -> Tensor:
        """Read what was committed since; logits [B, v] after each context.

        A row that is far behind (its prompt) is read alone first, so that the others are not
        padded to its length.
        """
        starts = [self._kept(ask) for ask in asks]
        for place, ask in enumerate(asks):
            while len(ask.context) - starts[place] > MOST_DRAFTED + 1:
                start = starts[place]
                chunk = ask.context[start : min(start + CHUNK, len(ask.context) - 1)]
                places = torch.arange(start, start + len(chunk), device=self.draft.device)
                self._forward(self._tensor([chunk]), places[None], [ask.row])
                starts[place] += len(chunk)
                self._held[ask.row] = _Held(starts[place])
        unread = [ask.context[start:] for ask, start in zip(asks, starts, strict=True)]
        width = max(map(len, unread))
        fed = self._tensor([[*tokens, *[0] * (width - len(tokens))] for tokens in unread])
        first = self._tensor(starts)
        positions = first[:, None] + torch.arange(width, device=self.draft.device)
        hidden = self._forward(fed, positions, [ask.row for ask in asks])
        last = self._tensor([len(tokens) - 1 for tokens in unread])
        return self.draft.logits(hidden[torch.arange(len(asks), device=last.device), last])

    def _kept(self, ask: Ask) -> int:
        """Tokens of the row's context that its cache holds; the last one is always read anew."""
        held = self._held.get(ask.row)
        if held is None:
            return 0
        since = ask.context[held.length : held.length + len(held.drafted)]
        kept = held.length
        for committed, drafted in zip(since, held.drafted, strict=False):
            if committed != drafted:
                break
            kept += 1
        return min(kept, len(ask.context) - 1)

    def _forward(self, ids: Tensor, positions: Tensor, rows: Sequence[int]) -> Tensor:
        """Last hidden states [B, T, H]. Ids that the draft has no row for are read as its last."""
        known = ids.clamp(max=self.draft.vocab_size - 1)
        return self.draft.forward(known, positions, self.cache, rows)[0]

    def move(self, source: int, row: int) -> None:
        self.forget(row)
        held = self._held.pop(source, None)
        if held is not None:
            self._held[row] = held
            self.cache.move(source, row, held.length + len(held.drafted))

    def forget(self, row: int) -> None:
        self._held.pop(row, None)

    def _tensor(self, values: Sequence[object]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=self.draft.device)
