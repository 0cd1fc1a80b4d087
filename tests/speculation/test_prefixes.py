"""What prompts begin with is found again, exactly, within bounds."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from speculation.prefixes import BLOCK, Parts, Prefixes


def keep(tokens: list[int], calls: list[tuple[int, int]] | None = None):  # type: ignore[no-untyped-def]  # a closure of a test
    def save(start: int, end: int) -> Parts:
        if calls is not None:
            calls.append((start, end))
        return (torch.tensor(tokens[start:end]),)

    return save


def matched(prefixes: Prefixes, kind: str | None, tokens: list[int]) -> list[int]:
    return [int(i) for parts in prefixes.match(kind, tokens) for i in parts[0]]


def test_a_shared_beginning_is_found_in_whole_blocks_and_one_token_is_left() -> None:
    prefixes = Prefixes(1000)
    tokens = list(range(3 * BLOCK))
    prefixes.add(None, tokens, keep(tokens))
    assert matched(prefixes, None, [*tokens, 7]) == tokens
    assert matched(prefixes, None, tokens) == tokens[: 2 * BLOCK]
    assert matched(prefixes, None, [*tokens[:BLOCK], 999, *tokens[BLOCK:]]) == tokens[:BLOCK]
    assert matched(prefixes, None, [5, *tokens]) == []
    assert matched(prefixes, "other adapter", [*tokens, 7]) == []


def test_equal_tokens_behind_different_beginnings_are_different_blocks() -> None:
    prefixes = Prefixes(1000)
    one, two, end = [1] * BLOCK, [2] * BLOCK, [3] * BLOCK
    prefixes.add(None, one + end, keep(one + end))
    assert matched(prefixes, None, [*two, *end, 0]) == []
    assert matched(prefixes, None, [*end, 0]) == []


def test_only_new_blocks_are_copied() -> None:
    prefixes, calls = Prefixes(1000), list[tuple[int, int]]()
    tokens = list(range(2 * BLOCK + 5))
    prefixes.add(None, tokens, keep(tokens, calls))
    longer = [*tokens[: 2 * BLOCK], *range(500, 500 + BLOCK)]
    prefixes.add(None, longer, keep(longer, calls))
    assert calls == [(0, BLOCK), (BLOCK, 2 * BLOCK), (2 * BLOCK, 3 * BLOCK)]


def test_a_forgotten_adapter_leaves_nothing_and_others_everything() -> None:
    prefixes = Prefixes(1000)
    tokens = list(range(BLOCK + 1))
    for kind in ("a", "b"):
        prefixes.add(kind, tokens, keep(tokens))
    prefixes.forget(lambda kind: kind == "a")
    assert matched(prefixes, "a", tokens) == []
    assert matched(prefixes, "b", tokens) == tokens[:BLOCK]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), max_size=12), st.integers(0, 9)
)
def test_memory_is_bounded_and_what_is_found_is_what_was_asked(
    heads: list[list[int]], blocks: int
) -> None:
    prefixes = Prefixes(blocks * BLOCK)
    for head in heads:
        tokens = [token for each in head for token in [each] * BLOCK]
        found = matched(prefixes, None, tokens)
        assert found == tokens[: len(found)]
        prefixes.add(None, tokens, keep(tokens))
        assert prefixes.tokens <= prefixes.capacity
        # Nothing is kept that could not be reached.
        numbers = {0} | {block.number for block in prefixes._blocks.values()}
        assert all(parent in numbers for _, parent, _ in prefixes._blocks)
