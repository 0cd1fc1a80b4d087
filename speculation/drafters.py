"""What proposes tokens: a head over the target's states, the context itself, or nothing.

A drafter follows the engine's rows: it sees the target's states of committed tokens, proposes for
chosen rows, and moves or forgets rows as the engine does. Token ids only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from speculation.cache import MOST_DRAFTED
from speculation.head import ARCHITECTURE, Head, load_head
from speculation.ngram import continuation
from speculation.sampling import Sampling, draw, probabilities, stream
from speculation.target import ModelFolderError, Target, read_config


class DraftError(ValueError):
    """A draft that cannot serve this target: what was found, what was wanted, what to do."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One row's wish for drafted tokens."""

    row: int
    context: Sequence[int]  # prompt and all committed tokens
    length: int  # tokens wanted, at least 1
    sampling: Sampling
    seed: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """Drafted tokens of each asked row, at most as many as asked for."""

    ids: list[list[int]]
    probs: list[Tensor] | None  # per row [drafted, V], the law they were drawn from; None: one-hot


class Drafter(Protocol):
    kind: str

    @property
    def feature_layers(self) -> tuple[int, ...]:
        """The target's layers whose inputs this drafter reads; empty for none."""

    def observe(self, row: int, start: int, features: Tensor | None) -> None:
        """The target's states [T, 3H] of `row`'s committed positions from `start` on."""

    def propose(self, asks: Sequence[Ask]) -> Proposal: ...

    def move(self, source: int, row: int) -> None:
        """Row `source` is row `row` from now on."""

    def forget(self, row: int) -> None:
        """Row `row`'s sequence has ended."""


class NoDrafter:
    """Plain decoding."""

    kind = "none"
    feature_layers: tuple[int, ...] = ()

    def observe(self, row: int, start: int, features: Tensor | None) -> None:
        pass

    def propose(self, asks: Sequence[Ask]) -> Proposal:
        return Proposal([[] for _ in asks], None)

    def move(self, source: int, row: int) -> None:
        pass

    def forget(self, row: int) -> None:
        pass


class NgramDrafter(NoDrafter):
    """Prompt lookup: what followed the last few tokens where they stood before in the context."""

    kind = "ngram"

    def propose(self, asks: Sequence[Ask]) -> Proposal:
        return Proposal([continuation(ask.context, ask.length) for ask in asks], None)


class HeadDrafter:
    """Drafts with an EAGLE-3 style head, all asked rows side by side."""

    kind = "head"

    def __init__(self, head: Head, embedding: Tensor, *, rows: int, max_len: int) -> None:
        self.head = head
        self.embedding = embedding
        self.cache = head.new_cache(rows=rows, max_len=max_len)
        self.token_ids = head.token_ids
        # Per row: position of the first state the head has not read, and those states [T, 3H].
        self.unread: dict[int, tuple[int, list[Tensor]]] = {}

    @property
    def feature_layers(self) -> tuple[int, ...]:
        return tuple(self.head.config.eagle_aux_hidden_state_layer_ids)

    def observe(self, row: int, start: int, features: Tensor | None) -> None:
        assert features is not None
        known, states = self.unread.get(row, (start, []))
        assert known + sum(len(state) for state in states) == start
        self.unread[row] = (known, [*states, features])

    def propose(self, asks: Sequence[Ask]) -> Proposal:
        state, positions = self._catch_up(asks)
        rows = [ask.row for ask in asks]
        longest = max(ask.length for ask in asks)
        greedy = all(ask.sampling.greedy for ask in asks)
        streams = [stream(ask.seed, len(ask.context), "draft") for ask in asks]
        drafted: list[Tensor] = []
        laws: list[Tensor] = []
        for step in range(longest):
            logits = self.head.logits(state)  # [B, draft vocabulary]
            if greedy:
                chosen = logits.argmax(dim=-1)
            else:
                law = torch.stack(
                    [
                        probabilities(row, ask.sampling)
                        for row, ask in zip(logits, asks, strict=True)
                    ]
                )
                chosen = draw(law, streams)
                laws.append(law)
            drafted.append(self.token_ids[chosen])
            if step + 1 < longest:
                positions = positions + 1
                embedded = self.embedding[drafted[-1]][:, None]
                state = self.head.step(
                    embedded, state[:, None], positions[:, None], self.cache, rows
                )
                state = state[:, 0]
        ids = torch.stack(drafted, dim=1).tolist()
        return Proposal(
            [row[: ask.length] for row, ask in zip(ids, asks, strict=True)],
            None
            if greedy
            else [self._full(laws, place, ask.length) for place, ask in enumerate(asks)],
        )

    def _full(self, laws: list[Tensor], place: int, length: int) -> Tensor:
        """Row `place` of `laws` over the target's vocabulary, [length, V]."""
        narrow = torch.stack([law[place] for law in laws[:length]])
        wide = narrow.new_zeros((length, len(self.head.t2d)))
        wide[:, self.token_ids] = narrow
        return wide

    def _catch_up(self, asks: Sequence[Ask]) -> tuple[Tensor, Tensor]:
        """Read every committed state; the last one's output [B, H] and position [B].

        A row that is far behind (its prompt) is read alone first, so that the others are not
        padded to its length.
        """
        for ask in asks:
            if self._behind(ask.row) > MOST_DRAFTED:
                self._read([ask], leave=1)
        return self._read(asks, leave=0)

    def _behind(self, row: int) -> int:
        return sum(len(state) for state in self.unread[row][1])

    def _read(self, asks: Sequence[Ask], *, leave: int) -> tuple[Tensor, Tensor]:
        """Read all unread states but the last `leave` of each row, in one forward."""
        starts, states, tokens = [], [], []
        for ask in asks:
            start, parts = self.unread[ask.row]
            joined = torch.cat(parts)
            take = len(joined) - leave
            starts.append(start)
            states.append(joined[:take])
            tokens.append(ask.context[start + 1 : start + 1 + take])
            assert len(tokens[-1]) == take
            self.unread[ask.row] = (start + take, [joined[take:]] if leave else [])
        lengths = [len(state) for state in states]
        width = max(lengths)
        device = self.embedding.device
        padded = states[0].new_zeros(len(asks), width, states[0].shape[-1])
        ids = torch.zeros(len(asks), width, dtype=torch.long, device=device)
        for place, (state, token) in enumerate(zip(states, tokens, strict=True)):
            padded[place, : len(state)] = state
            ids[place, : len(token)] = torch.tensor(token, device=device)
        first = torch.tensor(starts, device=device)
        positions = first[:, None] + torch.arange(width, device=device)
        output = self.head.step(
            self.embedding[ids], self.head.fc(padded), positions, self.cache, [a.row for a in asks]
        )
        last = torch.tensor(lengths, device=device) - 1
        return output[torch.arange(len(asks), device=device), last], first + last

    def move(self, source: int, row: int) -> None:
        if source in self.unread:
            self.unread[row] = self.unread.pop(source)
            self.cache.move(source, row, self.unread[row][0])

    def forget(self, row: int) -> None:
        self.unread.pop(row, None)


def load_drafter(draft: str | Path, target: Target, *, rows: int, max_len: int) -> Drafter:
    """The drafter that `draft` names: "ngram", "none", or a folder. Raises DraftError."""
    if str(draft) == "none":
        return NoDrafter()
    if str(draft) == "ngram":
        return NgramDrafter()
    folder = Path(draft)
    try:
        named = read_config(folder).get("architectures")
        if named != [ARCHITECTURE]:
            raise DraftError(
                f"{folder} holds {named}: this engine drafts with a head ([{ARCHITECTURE!r}]), "
                "'ngram' or 'none'"
            )
        head = load_head(folder, dtype=target.dtype, device=target.device)
    except ModelFolderError as error:
        raise DraftError(str(error)) from error
    wanted = (target.vocab_size, target.config.hidden_size)
    found = (head.config.vocab_size, head.config.hidden_size)
    if found != wanted:
        raise DraftError(
            f"{folder} was made for a target of (vocabulary, hidden size) {found}, this target has "
            f"{wanted}: train a draft for this target"
        )
    if bool((~torch.isfinite(head.lm_head.weight)).any()):
        raise DraftError(f"{folder} holds weights that are not finite: train it again")
    return HeadDrafter(head, target.embedding, rows=rows, max_len=max_len)
