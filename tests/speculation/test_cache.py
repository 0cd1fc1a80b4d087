"""What lies beyond a row's committed length never changes an output, whatever it is."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from speculation.cache import MOST_DRAFTED, RowCache
from speculation.target import Target, load_target
from tests.toys import ARCHITECTURES, toy_architecture_folder

ROWS, MAX_LEN = 4, 64
LENGTHS = (5, 23, 1, 14)  # committed tokens of each row
ATOL = 2e-5  # float32; another batch is another order of sums


@pytest.fixture(scope="module", params=["llama", "gemma2"])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Target:
    kind, options = ARCHITECTURES[request.param]
    folder = toy_architecture_folder(tmp_path_factory.mktemp("toy"), kind, **options)
    return load_target(folder, dtype="float32")


def some_ids(rows: int, length: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, 119, (rows, length), generator=generator)


@torch.inference_mode()
def forward(
    target: Target, cache: RowCache, ids: Tensor, starts: list[int], rows: list[int]
) -> Tensor:
    positions = torch.tensor(starts)[:, None] + torch.arange(ids.shape[1])
    return target.forward(ids, positions, cache, rows)[0]


def filled(target: Target, *, lengths: tuple[int, ...] = LENGTHS) -> RowCache:
    """A cache whose row i holds `lengths[i]` tokens."""
    cache = target.new_cache(rows=ROWS, max_len=MAX_LEN)
    for row, length in enumerate(lengths):
        forward(target, cache, some_ids(ROWS, 40)[row : row + 1, :length], [0], [row])
    return cache


def spoil(cache: RowCache, number: float, lengths: tuple[int, ...] = LENGTHS) -> None:
    """Fill everything beyond each row's committed length."""
    for stored in (*cache.keys, *cache.values):
        for row, length in enumerate(lengths):
            stored[row, :, length:] = number


def test_the_memory_of_a_cache_is_fixed(target: Target) -> None:
    cache = filled(target)
    before = [stored.data_ptr() for stored in (*cache.keys, *cache.values)]
    forward(target, cache, some_ids(ROWS, 9), list(LENGTHS), list(range(ROWS)))
    cache.move(1, 2, 20)
    assert [stored.data_ptr() for stored in (*cache.keys, *cache.values)] == before
    assert cache.keys[0].shape[2] == MAX_LEN + 2 * MOST_DRAFTED + 2


@pytest.mark.parametrize("number", [1e4, -1e4, 3e30])
def test_what_lies_beyond_a_rows_length_changes_nothing(target: Target, number: float) -> None:
    ids, rows = some_ids(ROWS, MOST_DRAFTED + 1, seed=3), list(range(ROWS))
    clean = forward(target, filled(target), ids, list(LENGTHS), rows)
    cache = filled(target)
    spoil(cache, number)
    assert torch.equal(forward(target, cache, ids, list(LENGTHS), rows), clean)


@pytest.mark.parametrize("kept", [0, 1, 7, MOST_DRAFTED + 1], ids=lambda kept: f"kept {kept}")
def test_rolling_back_any_part_of_a_block_is_as_if_it_had_not_been(
    target: Target, kept: int
) -> None:
    """`kept` tokens of a block of K + 1 stay; the rest is forgotten by the length alone."""
    rows, block, after = list(range(ROWS)), some_ids(ROWS, MOST_DRAFTED + 1, 4), some_ids(ROWS, 5)
    cache = filled(target)
    forward(target, cache, block, list(LENGTHS), rows)
    ends = [length + kept for length in LENGTHS]
    got = forward(target, cache, after, ends, rows)
    fresh = filled(target)
    if kept:
        forward(target, fresh, block[:, :kept], list(LENGTHS), rows)
    torch.testing.assert_close(got, forward(target, fresh, after, ends, rows), atol=ATOL, rtol=0)


def test_rows_keep_their_own_positions_in_a_ragged_batch(target: Target) -> None:
    ids = some_ids(ROWS, 6, seed=5)
    together = forward(target, filled(target), ids, list(LENGTHS), list(range(ROWS)))
    for row, length in enumerate(LENGTHS):
        alone = forward(target, filled(target), ids[row : row + 1], [length], [row])
        torch.testing.assert_close(together[row : row + 1], alone, atol=ATOL, rtol=0)


@pytest.mark.parametrize("rows", [[2], [3, 1], [0, 2, 3], [3, 2, 1, 0]])
def test_any_choice_of_rows_is_served(target: Target, rows: list[int]) -> None:
    ids, starts = some_ids(ROWS, 3, seed=6), list(LENGTHS)
    together = forward(target, filled(target), ids, starts, list(range(ROWS)))
    chosen = forward(target, filled(target), ids[rows], [starts[row] for row in rows], rows)
    torch.testing.assert_close(chosen, together[rows], atol=ATOL, rtol=0)


def test_one_wide_block_is_the_same_as_token_by_token(target: Target) -> None:
    ids = some_ids(1, MOST_DRAFTED + 1, seed=7)
    wide = forward(target, filled(target), ids, [LENGTHS[1]], [1])
    cache = filled(target)
    single = [
        forward(target, cache, ids[:, place : place + 1], [LENGTHS[1] + place], [1])
        for place in range(ids.shape[1])
    ]
    torch.testing.assert_close(wide, torch.cat(single, dim=1), atol=ATOL, rtol=0)


def test_a_row_that_moved_goes_on_as_it_would_have(target: Target) -> None:
    ids = some_ids(1, 4, seed=8)
    stayed = forward(target, filled(target), ids, [LENGTHS[1]], [1])
    cache = filled(target)
    cache.move(1, 3, LENGTHS[1])
    spoil(cache, 1e4, (0, 0, 0, LENGTHS[1]))
    torch.testing.assert_close(
        forward(target, cache, ids, [LENGTHS[1]], [3]), stayed, atol=ATOL, rtol=0
    )


def test_padding_at_a_rows_end_is_harmless(target: Target) -> None:
    ids, rows = some_ids(ROWS, 8, seed=9), list(range(ROWS))
    other = ids.clone()
    other[:, 5:] = some_ids(ROWS, 3, seed=10)
    one = forward(target, filled(target), ids, list(LENGTHS), rows)[:, :5]
    assert torch.equal(forward(target, filled(target), other, list(LENGTHS), rows)[:, :5], one)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("place", ["padding", "another row", "a later request"])
def test_a_position_that_is_not_finite_hurts_no_other(
    target: Target, bad: float, place: str
) -> None:
    """A token whose embedding is not finite stands for whatever overflows inside a model."""
    token, rows = 7, list(range(ROWS))
    ids = some_ids(ROWS, 6, seed=11)
    ids[ids == token] = token + 1
    wanted = forward(target, filled(target), ids, list(LENGTHS), rows)
    kept = target.embedding[token].clone()
    cache = filled(target)
    try:
        target.embedding[token] = bad
        hurt = ids.clone()
        if place == "padding":
            hurt[:, 4:] = token
            got = forward(target, cache, hurt, list(LENGTHS), rows)
            assert not torch.isfinite(got[:, 4:]).any(dim=-1).any()  # it is not hidden, either
            assert torch.equal(got[:, :4], wanted[:, :4])
        elif place == "another row":
            hurt[2] = token
            got = forward(target, cache, hurt, list(LENGTHS), rows)
            assert not torch.isfinite(got[2]).any()
            assert torch.equal(got[[0, 1, 3]], wanted[[0, 1, 3]])
        else:
            hurt[2, 2:] = token  # its request ends, and the row is another's
            forward(target, cache, hurt, list(LENGTHS), rows)
            got = forward(target, cache, ids, list(LENGTHS), rows)
            assert torch.equal(got, wanted)
    finally:
        target.embedding[token] = kept
