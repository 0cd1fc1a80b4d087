"""Where the last few tokens stood before: in a row's own context, or in what others emitted.

The lookup of Saxena 2023 ("prompt lookup decoding"), as indices that grow with their text, so that
a lookup costs the same at any length. Token ids only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

LONGEST = 4  # tokens matched at most; longer matches are tried first
SHORTEST = 2  # a single token matches by chance too often
SIZES = range(LONGEST, SHORTEST - 1, -1)
SEGMENT = 256  # tokens of others that are dropped together, at most

Ngram = tuple[int, ...]


def copied(tokens: Sequence[int], start: int, length: int) -> list[int]:
    """`length` tokens from `start` on; past the end it goes on with what it has copied itself.

    As in LZ77, so that a short period is followed for a whole block. `start` < len(tokens).

    >>> copied([5, 6, 7, 5], 1, 5)
    [6, 7, 5, 6, 7]
    """
    ahead = list(tokens[start : start + length])
    period = len(tokens) - start
    while len(ahead) < length:
        ahead.append(ahead[-period])
    return ahead


class ContextIndex:
    """Where each n-gram of one growing context was last followed by something.

    >>> index, context = ContextIndex(), [5, 6, 7, 8, 5, 6]
    >>> index.follow(context)
    >>> index.find(context, 2)
    2
    """

    def __init__(self) -> None:
        self._after: dict[Ngram, int] = {}
        self._read = 0  # tokens

    def follow(self, context: Sequence[int]) -> None:
        """Enter what `context` has got since the last call."""
        for end in range(max(self._read, SHORTEST), len(context)):
            for size in SIZES:
                if size <= end:
                    self._after[tuple(context[end - size : end])] = end
        self._read = len(context)

    def find(self, context: Sequence[int], size: int) -> int | None:
        """The place after the latest earlier match of the context's last `size` tokens."""
        return self._after.get(tuple(context[-size:]))


class Segment:
    """Some consecutive tokens that one request emitted."""

    __slots__ = ("kept", "tokens")

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens
        self.kept = True  # until the index drops it


class SharedIndex:
    """The last `capacity` tokens that requests emitted, and where each n-gram of them is.

    Whole segments are dropped, the oldest first, with the n-grams that led into them: at most
    `capacity` tokens and LONGEST - SHORTEST + 1 entries for each are held.
    """

    def __init__(self, capacity: int) -> None:
        assert capacity > 0
        self.capacity = capacity
        self.held = 0  # tokens
        self._longest = max(min(SEGMENT, capacity // 4), LONGEST + 1)
        self._segments: deque[Segment] = deque()
        self._after: dict[Ngram, tuple[Segment, int]] = {}

    @property
    def entries(self) -> int:
        return len(self._after)

    def extend(self, segment: Segment | None, tokens: Sequence[int]) -> Segment | None:
        """One request goes on from `segment` (None: it begins); returns where it goes on next."""
        for token in tokens:
            if segment is None or not segment.kept or len(segment.tokens) == self._longest:
                # The new segment begins with the old one's end, so that no n-gram is cut.
                segment = Segment(segment.tokens[-LONGEST:] if segment else [])
                self.held += len(segment.tokens)
                self._segments.append(segment)
            end = len(segment.tokens)
            segment.tokens.append(token)
            self.held += 1
            for size in SIZES:
                if size <= end:
                    self._after[tuple(segment.tokens[end - size : end])] = (segment, end)
            while self.held > self.capacity:
                self._drop()
        return segment

    def _drop(self) -> None:
        oldest = self._segments.popleft()
        oldest.kept = False
        self.held -= len(oldest.tokens)
        for end in range(SHORTEST, len(oldest.tokens)):
            for size in SIZES:
                key = tuple(oldest.tokens[end - size : end]) if size <= end else ()
                if key in self._after and self._after[key][0] is oldest:
                    del self._after[key]

    def find(self, context: Sequence[int], size: int, length: int) -> list[int]:
        """At most `length` tokens that followed the latest match of the last `size` tokens."""
        found = self._after.get(tuple(context[-size:]))
        if found is None:
            return []
        segment, end = found
        return segment.tokens[end : end + length]
