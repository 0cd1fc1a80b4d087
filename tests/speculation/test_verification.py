"""Rejection sampling gives the target's law, and the test would notice if it did not."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from speculation.verification import accept_count, matching_accept_count, next_probs

VOCAB, DRAFTED, ROUNDS = 3, 2, 40_000
ALPHA = 1e-6  # the suite must not fail by chance; each injected bug gives a p-value under 1e-30


def law(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, VOCAB, generator=generator).pow(2).softmax(-1)


def markov(first: Tensor, then: Tensor) -> dict[tuple[int, ...], float]:
    """The exact joint law of three tokens where each depends on the one before."""
    return {
        (a, b, c): float(first[a] * then[a, b] * then[b, c])
        for a, b, c in itertools.product(range(VOCAB), repeat=3)
    }


Next = Callable[[Tensor, Tensor | None, Tensor, Tensor, Tensor], Tensor]


def speculate(seed: int, *, one_hot: bool, ratio: Callable[..., Tensor], after: Next) -> float:
    """The p-value of 40,000 first three tokens of speculative decoding against the target's law."""
    generator = torch.Generator().manual_seed(seed)
    first, then = law(generator), law(generator, VOCAB)
    draft_first, draft_then = law(generator), law(generator, VOCAB)
    size = (ROUNDS,)
    if one_hot:  # a greedy draft of the draft's law
        draft_first = torch.nn.functional.one_hot(draft_first.argmax(), VOCAB).float()
        draft_then = torch.nn.functional.one_hot(draft_then.argmax(-1), VOCAB).float()

    def one(probs: Tensor) -> Tensor:
        return torch.multinomial(probs, 1, generator=generator)[:, 0]

    d1 = one(draft_first.expand(*size, -1))
    d2 = one(draft_then[d1])
    ids = torch.stack([d1, d2], 1)
    target = torch.stack([first.expand(*size, -1), then[d1], then[d2]], 1)
    draft = torch.stack([draft_first.expand(*size, -1), draft_then[d1]], 1)
    given_draft = None if one_hot else draft
    lens = torch.full(size, DRAFTED)
    uniform = torch.rand(ROUNDS, DRAFTED, generator=generator)
    accepted = ratio(target[:, :DRAFTED], given_draft, ids, lens, uniform)
    added = one(after(target, given_draft, ids, lens, accepted))
    # Rounds emit one to three tokens; the missing ones are decoded plainly.
    out = torch.zeros(ROUNDS, 3, dtype=torch.long)
    for place in range(3):
        previous = out[:, place - 1]
        plain = one(then[previous]) if place else added
        drafted = ids[:, place] if place < DRAFTED else added
        out[:, place] = torch.where(
            accepted > place, drafted, torch.where(accepted == place, added, plain)
        )
    wanted = markov(first, then)
    seen = {key: 0 for key in wanted}
    for row in out.tolist():
        seen[tuple(row)] += 1
    expected = [wanted[key] * ROUNDS for key in wanted]
    scale = ROUNDS / sum(expected)
    return float(chisquare(list(seen.values()), [e * scale for e in expected]).pvalue)


@pytest.mark.parametrize(("seed", "one_hot"), [(1, False), (2, True), (3, False)])
def test_three_tokens_follow_the_targets_joint_law(seed: int, one_hot: bool) -> None:
    assert speculate(seed, one_hot=one_hot, ratio=accept_count, after=next_probs) > ALPHA


def from_target(
    target: Tensor, draft: Tensor | None, ids: Tensor, lens: Tensor, n: Tensor
) -> Tensor:
    return target[torch.arange(len(n)), n]


def from_draft(
    target: Tensor, draft: Tensor | None, ids: Tensor, lens: Tensor, n: Tensor
) -> Tensor:
    assert draft is not None
    rows = torch.arange(len(n))
    return torch.where((n < lens)[:, None], draft[rows, n.clamp(max=1)], target[rows, n])


def argmax_residual(
    target: Tensor, draft: Tensor | None, ids: Tensor, lens: Tensor, n: Tensor
) -> Tensor:
    best = next_probs(target, draft, ids, lens, n).argmax(-1)
    return torch.nn.functional.one_hot(best, VOCAB).float()


def flipped(target: Tensor, draft: Tensor | None, ids: Tensor, lens: Tensor, u: Tensor) -> Tensor:
    assert draft is not None
    return accept_count(draft, target, ids, lens, u)


@pytest.mark.parametrize("bug", [from_target, from_draft, argmax_residual])
def test_a_wrong_residual_is_caught(bug: Next) -> None:
    assert speculate(1, one_hot=False, ratio=accept_count, after=bug) < ALPHA


def test_a_flipped_ratio_is_caught() -> None:
    assert speculate(1, one_hot=False, ratio=flipped, after=next_probs) < ALPHA


def test_a_token_of_target_probability_zero_is_never_kept() -> None:
    target = torch.tensor([[[0.0, 1.0, 0.0]]])
    ids, lens = torch.tensor([[0]]), torch.tensor([1])
    assert accept_count(target, None, ids, lens, torch.zeros(1, 1)).item() == 0


def test_equal_laws_whose_rejection_is_rounding_fall_back_to_the_target() -> None:
    target = torch.tensor([[[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]])
    found = next_probs(
        target, target[:, :1], torch.tensor([[0]]), torch.tensor([1]), torch.tensor([0])
    )
    assert found.tolist() == [[0.5, 0.5, 0.0]]


@settings(max_examples=200, deadline=None)
@given(
    weights=st.lists(
        st.lists(st.sampled_from([0.0, 1e-45, 1e-30, 0.1, 1.0, 7.0]), min_size=4, max_size=4),
        min_size=2,
        max_size=2,
    ),
    drafted=st.integers(0, 3),
    u=st.floats(0, 1, exclude_max=True, width=32),
)
def test_odd_laws_never_give_nan_nor_a_forbidden_token(
    weights: list[list[float]], drafted: int, u: float
) -> None:
    rows = torch.tensor(weights)
    if (rows.sum(-1) <= 0).any():
        return
    target, draft = (rows / rows.sum(-1, keepdim=True))[:, None]
    if not torch.isfinite(target).all() or not torch.isfinite(draft).all():
        return  # a row of subnormals alone cannot be normalised; softmax never makes one
    ids, lens = torch.tensor([[drafted]]), torch.tensor([1])
    stacked = torch.stack([target[0], target[0]])[None]
    accepted = accept_count(stacked[:, :1], draft[None], ids, lens, torch.tensor([[u]]))
    if accepted.item() == 1:
        assert target[0, drafted] > 0
    after = next_probs(stacked, draft[None], ids, lens, accepted)[0]
    assert torch.isfinite(after).all()
    assert after.sum() == pytest.approx(1, abs=1e-5)
    assert not ((after > 0) & (target[0] == 0)).any()


def test_a_residual_of_subnormal_mass_is_still_a_law() -> None:
    target = torch.tensor([[[1.0, 0.0, 1e-44], [1.0, 0.0, 0.0]]])
    draft = torch.tensor([[[1.0, 0.0, 0.0]]])
    one = torch.tensor([1])
    found = next_probs(target, draft, torch.tensor([[0]]), one, torch.tensor([0]))
    assert found.tolist() == [[0.0, 0.0, 1.0]]


def test_ragged_rows_keep_no_more_than_they_drafted() -> None:
    best = torch.tensor([[5, 6, 7, 8], [5, 6, 7, 8], [9, 6, 7, 8]])
    ids = torch.tensor([[5, 6, 7], [5, 6, 7], [5, 6, 7]])
    assert matching_accept_count(best, ids, torch.tensor([3, 1, 3])).tolist() == [3, 1, 0]
