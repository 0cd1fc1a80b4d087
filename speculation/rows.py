"""Which sequence owns which row of the caches, from its prompt's first token to its last.

Rows are kept dense, so that a round's caches are views: sequence i of `running` owns row i, and the
one whose prompt is being read owns the row after them. Knows rows; knows nothing of forwards.
"""

from __future__ import annotations

from speculation.cache import RowCache
from speculation.drafting import Drafting
from speculation.lengths import Lengths
from speculation.sequence import Running


class Rows:
    """`count` rows at most. The drafters' rows move with the target's."""

    def __init__(self, count: int, cache: RowCache, drafting: Drafting, lengths: Lengths) -> None:
        self.count = count
        self.running: list[Running] = []
        self.reading: Running | None = None  # its prompt is being read, in row `next`
        self._cache, self._drafting, self._lengths = cache, drafting, lengths

    @property
    def next(self) -> int:
        """The row behind the running ones."""
        return len(self.running)

    @property
    def owned(self) -> int:
        return len(self.running) + (self.reading is not None)

    def join(self, sequence: Running) -> None:
        """The prompt that was being read is read: its sequence decodes, in the row it has."""
        assert sequence is self.reading
        self.reading = None
        self.running.append(sequence)

    def abandon(self, sequence: Running) -> None:
        """The prompt that was being read will not be read to its end."""
        assert sequence is self.reading
        self.reading = None
        self._drafting.forget(sequence, self.next)

    def leave(self, sequence: Running) -> None:
        """A running sequence has ended: the last one takes its row, and the one whose prompt is
        being read follows."""
        row = self.running.index(sequence)
        self._drafting.forget(sequence, row)
        self._lengths.finish(sequence)
        last = self.running.pop()
        if last is not sequence:
            self.running[row] = last
            self._move(last, self.next, row, len(last.tokens))
        if self.reading is not None:
            self._move(self.reading, self.next + 1, self.next, self.reading.prefilled)

    def _move(self, sequence: Running, source: int, row: int, length: int) -> None:
        self._cache.move(source, row, length)
        self._drafting.move(sequence, source, row)
