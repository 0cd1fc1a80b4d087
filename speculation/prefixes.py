"""Keys and values of prompt beginnings that came before, so that they need not be computed again.

A tree of blocks of tokens: a block is found by its parent and its very tokens, so two prompts share
exactly what they begin with, and nothing can collide. Bounded in tokens; what was not used longest
goes first. Knows token ids and opaque tensors; what they are the engine knows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import count

from torch import Tensor

BLOCK = 32  # tokens

Parts = Sequence[Tensor]  # of one block: what `save` gave


@dataclass(frozen=True, slots=True)
class _Block:
    number: int
    parts: Parts


class Prefixes:
    """At most `capacity` tokens of prompt beginnings; 0 keeps none.

    `kind` is whatever two prompts must share besides tokens for their keys to be the same: the
    adapter, and who may know of it. Of one engine only, so release and draft are the same anyway.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        # In the order of use. A parent is used after its children, so it outlives them.
        self._blocks: OrderedDict[tuple[Hashable, int, tuple[int, ...]], _Block] = OrderedDict()
        self._numbers = count(1)

    @property
    def tokens(self) -> int:
        """Tokens stored."""
        return len(self._blocks) * BLOCK

    def match(self, kind: Hashable, tokens: Sequence[int]) -> list[Parts]:
        """The stored blocks that `tokens` begin with. One token at least is left to compute."""
        found = self._walk(kind, tokens, (len(tokens) - 1) // BLOCK)
        for key, _ in reversed(found):
            self._blocks.move_to_end(key)
        return [block.parts for _, block in found]

    def add(self, kind: Hashable, tokens: Sequence[int], save: Callable[[int, int], Parts]) -> None:
        """Store the whole blocks of `tokens`; `save(start, end)` copies a new one's tensors."""
        whole = min(len(tokens), self.capacity) // BLOCK
        found = self._walk(kind, tokens, whole)
        parent = found[-1][1].number if found else 0
        for place in range(len(found), whole):
            start = place * BLOCK
            key = (kind, parent, tuple(tokens[start : start + BLOCK]))
            block = _Block(next(self._numbers), save(start, start + BLOCK))
            self._blocks[key] = block
            found.append((key, block))
            parent = block.number
        for key, _ in reversed(found):
            self._blocks.move_to_end(key)
        while self.tokens > self.capacity:
            self._blocks.popitem(last=False)

    def forget(self, gone: Callable[[Hashable], bool]) -> None:
        """Drop all blocks of the kinds that are `gone`: an adapter has changed, say."""
        for key in [key for key in self._blocks if gone(key[0])]:
            del self._blocks[key]

    def _walk(
        self, kind: Hashable, tokens: Sequence[int], most: int
    ) -> list[tuple[tuple[Hashable, int, tuple[int, ...]], _Block]]:
        found = []
        parent = 0
        for place in range(most):
            key = (kind, parent, tuple(tokens[place * BLOCK : (place + 1) * BLOCK]))
            block = self._blocks.get(key)
            if block is None:
                break
            found.append((key, block))
            parent = block.number
        return found
