"""The indices that grow find what a scan of everything finds, and what is shared stays bounded."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculation.drafters import Ask, NgramDrafter
from speculation.ngram import LONGEST, SHORTEST, SIZES, Segment, SharedIndex, copied
from speculation.sampling import Sampling
from tests.speculation.histories import History

GREEDY = Sampling()


def scanned(context: list[int], length: int) -> tuple[int, list[int]]:
    """The plain version: the latest earlier match of the longest ending, and what follows it."""
    for size in range(min(LONGEST, len(context) - 1), SHORTEST - 1, -1):
        ending = context[-size:]
        for start in range(len(context) - size - 1, -1, -1):
            if context[start : start + size] == ending:
                text = list(context)
                for step in range(length):
                    text.append(text[start + size + step])
                return size, text[len(context) :]
    return 0, []


def asked(context: list[int], length: int = 4, row: int = 0) -> Ask:
    return Ask(row, context, length, GREEDY, 0)


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=60),
    st.lists(st.integers(1, 7), max_size=40),
    st.integers(1, 16),
)
def test_an_index_that_follows_its_context_finds_what_a_scan_finds(
    tokens: list[int], steps: list[int], length: int
) -> None:
    drafter = NgramDrafter()
    end = 1
    for step in [*steps, len(tokens)]:
        context = tokens[:end]
        assert drafter.propose([asked(context, length)]).ids == [scanned(context, length)[1]]
        end += step


@pytest.mark.parametrize("shared_tokens", [0, 500])
def test_rows_that_move_and_leave_keep_their_own_index(shared_tokens: int) -> None:
    drafter = NgramDrafter(shared_tokens)
    found = 0

    def check(asks: list[Ask], _: object, proposal: object) -> None:
        nonlocal found
        for ask, ids in zip(asks, proposal.ids, strict=True):  # type: ignore[attr-defined]
            size, wanted = scanned(list(ask.context), ask.length)
            if shared_tokens and size < LONGEST:
                continue  # what others emitted may have matched further back
            assert ids == wanted
            found += bool(ids)

    history = History(drafter, 3, check, lambda *_: None, seed=1)
    history.live(200)
    assert found > 100
    assert history.joined > 8


def test_a_rounds_cost_does_not_grow_with_the_context() -> None:
    reads = 0

    class Counted(list[int]):
        def __getitem__(self, place: object) -> object:  # type: ignore[override]
            nonlocal reads
            reads += 1
            return super().__getitem__(place)  # type: ignore[call-overload]

    drafter = NgramDrafter()
    rng = random.Random(0)
    context = Counted(rng.randrange(1000) for _ in range(200))
    costs = []
    for _ in range(300):
        reads = 0
        drafter.propose([asked(context)])
        costs.append(reads)
        context.extend(rng.randrange(1000) for _ in range(3))
    assert costs[0] > 500  # the first reads it all
    assert max(costs[1:]) < 20


def test_a_short_period_is_followed_for_a_whole_block() -> None:
    assert NgramDrafter().propose([asked([9, 1, 2, 1, 2], 7)]).ids == [[1, 2, 1, 2, 1, 2, 1]]
    assert copied([4], 0, 3) == [4, 4, 4]


def test_what_one_request_emitted_is_drafted_for_the_next_only_where_that_was_asked_for() -> None:
    answer = [11, 12, 13, 14, 15, 16, 17]
    for shared_tokens, drafted in ((0, []), (1000, [15, 16, 17])):
        drafter = NgramDrafter(shared_tokens)
        drafter.propose([asked([1, 2])])
        drafter.propose([asked([1, 2, *answer])])
        drafter.forget(0)
        assert drafter.propose([asked([3, 12, 13, 14], 3)]).ids == [drafted]


def test_prompts_are_never_shared() -> None:
    drafter = NgramDrafter(1000)
    secret = [21, 22, 23, 24, 25]
    drafter.propose([asked(secret)])
    drafter.propose([asked([*secret, 30, 31, 32])])
    for row, ending in enumerate(([22, 23, 24], [24, 25, 30], [21, 22])):
        assert drafter.propose([asked([1, *ending], row=row + 1)]).ids == [[]]
    assert drafter.shared is not None
    assert drafter.shared.held == 3


def test_the_longest_match_wins_and_at_equal_length_the_contexts() -> None:
    drafter = NgramDrafter(1000)
    drafter.propose([asked([1])])
    drafter.propose([asked([1, 5, 6, 7, 8, 40, 41])])
    context = [7, 8, 50, 51, 52, 9]
    # Two tokens match in both: the context's. Three match only in what was emitted before.
    assert drafter.propose([asked([*context, 7, 8], 2, row=1)]).ids == [[50, 51]]
    drafter.forget(1)
    assert drafter.propose([asked([*context, 6, 7, 8], 2, row=1)]).ids == [[40, 41]]


@pytest.mark.parametrize("capacity", [1, 7, 64, 1000])
def test_the_shared_index_is_bounded_and_never_names_what_it_dropped(capacity: int) -> None:
    rng = random.Random(capacity)
    shared = SharedIndex(capacity)
    rows: list[Segment | None] = [None] * 3
    texts: list[list[int]] = [[], [], []]
    for _ in range(2000):
        row = rng.randrange(3)
        block = [rng.randrange(6) for _ in range(rng.randrange(1, 6))]
        texts[row] += block
        rows[row] = shared.extend(rows[row], block)
        if rng.random() < 0.01:
            rows[row], texts[row] = None, []
        assert shared.held <= capacity
        assert shared.held == sum(len(segment.tokens) for segment in shared._segments)
        assert shared.entries <= len(SIZES) * capacity
        assert all(segment.kept for segment, _ in shared._after.values())


def test_what_is_dropped_takes_nothing_with_it_that_was_said_again_since() -> None:
    shared = SharedIndex(40)  # segments of 10
    first = shared.extend(None, [1, 2, 3, 4])
    again = shared.extend(None, [1, 2, 3, 5])
    segment = shared.extend(None, list(range(50, 60)))
    assert first is not None
    for token in range(60, 99):
        if first.kept:
            segment = shared.extend(segment, [token])
    assert not first.kept
    assert again is not None
    assert again.kept
    assert shared.find([9, 1, 2, 3], 3, 2) == [5]


def test_a_request_longer_than_a_segment_is_found_across_its_segments() -> None:
    shared = SharedIndex(4000)
    text = [n * n % 9973 for n in range(900)]
    segment = None
    for start in range(0, 900, 7):
        segment = shared.extend(segment, text[start : start + 7])
    for end in range(LONGEST, 899):
        found = shared.find(text[:end], LONGEST, 5)
        assert found
        assert found == text[end : end + len(found)]
