"""A key/value cache of fixed memory whose rows are sequences and whose rollback is a length.

Knows transformers' calling convention for caches (`update(keys, values, layer)`); knows nothing of
tokens. Each sequence owns one row. What lies beyond a row's committed length is never attended, so
rejecting drafted tokens copies nothing: the next round writes over them. Sliding windows are masks
over the whole length: nothing rolls, so nothing that a rejected draft pushed out is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

MOST_DRAFTED = 16  # K at most; every cache has this much room beyond its longest sequence
ROOM = 2 * MOST_DRAFTED + 2  # the longest rows pad the others: twice K, for a head reads and drafts


class RowCache:
    """Keys and values of `rows` sequences of at most `max_len` tokens, for every layer.

    `begin` names the rows and positions of the forward that follows; `update` then stores that
    forward's keys and values and returns what it may attend to. Rows that lie next to each other
    are served as views; any other choice of rows is gathered.

    A masked position has weight 0, and 0 times a finite number is nothing, whatever the number.
    Times NaN or infinity it is NaN: with `finite` set these are stored as 0 and the largest
    number, so that no position is hurt by another's.
    """

    is_compileable = False  # transformers asks

    def __init__(
        self,
        *,
        layers: int,
        rows: int,
        heads: int,
        max_len: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
        value_dim: int | None = None,  # None: head_dim
    ) -> None:
        self.rows, self.max_len = rows, max_len + ROOM
        self.finite = False
        self.keys, self.values = (
            [
                torch.zeros((rows, heads, self.max_len, width), dtype=dtype, device=device)
                for _ in range(layers)
            ]
            for width in (head_dim, value_dim or head_dim)
        )

    def begin(self, rows: Sequence[int], positions: Tensor) -> Tensor:
        """Prepare the forward of `rows` at `positions` [B, T]; returns its mask [B, 1, T, end].

        Each row's positions must be consecutive. True means: may be attended.
        """
        assert positions.shape[0] == len(rows)
        first: list[int] = positions[:, 0].tolist()
        length = positions.shape[1]
        self._end = max(first) + length
        assert self._end <= self.max_len, f"{self._end} tokens in a cache of {self.max_len}"
        start = rows[0]
        self._adjacent = list(rows) == list(range(start, start + len(rows)))
        self._span = slice(start, start + len(rows))
        self._row_index = torch.tensor(rows, device=positions.device)[:, None]
        self._positions = positions
        # One slice write is cheaper than scattered ones, and a batch of one is always uniform.
        self._uniform = slice(first[0], first[0] + length) if len(set(first)) == 1 else None
        self._columns = torch.arange(self._end, device=positions.device)
        self._causal = (self._columns[None, None, :] <= positions[:, :, None])[:, None]
        return self._causal

    def windowed(self, window: int) -> Tensor:
        """`begin`'s mask where each position sees only the latest `window`, its own included."""
        if self._end <= window:
            return self._causal
        seen = self._columns[None, None, :] > self._positions[:, :, None] - window
        return self._causal & seen[:, None]

    def update(
        self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Store `keys` and `values` [B, H, T, D]; returns all the rows hold, [B, H, end, D]."""
        return self._store(self.keys[layer], keys), self._store(self.values[layer], values)

    def _store(self, stored: Tensor, new: Tensor) -> Tensor:
        if self.finite:
            new = torch.nan_to_num(new)
        if self._adjacent and self._uniform is not None:
            stored[self._span, :, self._uniform] = new
        else:
            stored[self._row_index, :, self._positions] = new.transpose(1, 2)
        if self._adjacent:
            return stored[self._span, :, : self._end]
        return stored[self._row_index[:, 0], :, : self._end]

    def move(self, source: int, row: int, length: int) -> None:
        """Copy the first `length` tokens of row `source` to `row`."""
        for stored in (*self.keys, *self.values):
            stored[row, :, :length] = stored[source, :, :length]

    def read(self, row: int, start: int, end: int) -> tuple[Tensor, Tensor]:
        """A copy of row `row`'s keys and values from `start` to `end`, [layers, H, T, D] each."""
        keys, values = (
            torch.stack([layer[row, :, start:end] for layer in stored])
            for stored in (self.keys, self.values)
        )
        return keys, values

    def write(self, row: int, start: int, keys: Tensor, values: Tensor) -> None:
        """Store what `read` gave, from `start` on."""
        for stored, layers in ((self.keys, keys), (self.values, values)):
            for layer, new in zip(stored, layers, strict=True):
                layer[row, :, start : start + new.shape[1]] = new

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """What transformers asks where no positions are given; ours always are."""
        return self._end - self._positions.shape[1]
