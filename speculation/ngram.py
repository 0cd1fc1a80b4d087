"""Prompt lookup: draft what followed the last tokens where they stood before. Token ids only.

After Saxena 2023 ("prompt lookup decoding"): free, and strong where the output repeats its input.
"""

from __future__ import annotations

from collections.abc import Sequence

LONGEST = 4  # tokens matched at most; longer matches are tried first
SHORTEST = 2  # a single token matches by chance too often


def continuation(context: Sequence[int], length: int) -> list[int]:
    """At most `length` tokens that followed the latest earlier match of the context's end.

    >>> continuation([5, 6, 7, 8, 5, 6], 2)
    [7, 8]
    >>> continuation([1, 2, 3], 2)
    []
    """
    tokens = list(context)
    for size in range(min(LONGEST, len(tokens) - 1), SHORTEST - 1, -1):
        ending = tokens[-size:]
        for start in range(len(tokens) - size - 1, -1, -1):
            if tokens[start] == ending[0] and tokens[start : start + size] == ending:
                return tokens[start + size : start + size + length]
    return []
