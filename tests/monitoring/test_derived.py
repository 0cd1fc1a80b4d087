"""What follows from vLLM's counters, against every run of rounds that can have given them."""

from __future__ import annotations

from itertools import combinations_with_replacement

import pytest

from monitoring.derived import derive

# (drafted, accepted) of one round
ROUNDS = [(k, a) for k in (1, 2, 3) for a in range(k + 1)]


def test_full_rounds_tell_what_was_judged() -> None:
    found = derive(100, 300, (80, 60, 45), draft_len=3)
    assert found is not None
    assert found.exact
    assert found.low == found.high == pytest.approx(0.7708, abs=5e-5)
    assert found.counts.hazards == (0.8, 0.75, 0.75)


def test_shorter_rounds_leave_bounds_and_the_first_position() -> None:
    found = derive(100, 270, (80, 60, 45), draft_len=3)
    assert found is not None
    assert not found.exact
    assert [found.low, found.high] == pytest.approx([0.7708, 0.8645], abs=5e-5)
    assert found.counts.hazards == (0.8,)
    assert "bounded" in found.told


@pytest.mark.parametrize("rounds", [1, 2, 3, 4])
def test_the_truth_lies_within_the_bounds_whatever_the_rounds_were(rounds: int) -> None:
    """A round that drafted k and accepted a judged a + 1 tokens, or all k."""
    for chosen in combinations_with_replacement(ROUNDS, rounds):
        drafted = sum(k for k, _ in chosen)
        accepted = [sum(a > j for _, a in chosen) for j in range(3)]
        judged = sum(min(a + 1, k) for k, a in chosen)
        found = derive(rounds, drafted, accepted, draft_len=3)
        assert found is not None
        assert found.low - 1e-12 <= sum(accepted) / judged <= found.high + 1e-12
        assert found.counts.judged_per_position[0] == rounds
        if all(k == 3 for k, _ in chosen):
            assert found.exact
            assert found.counts.judged == judged


def test_nothing_was_drafted() -> None:
    assert derive(0, 0, (0, 0), draft_len=2) is None


@pytest.mark.parametrize(
    ("drafts", "drafted", "accepted"),
    [(10, 5, (1,)), (10, 30, (20, 20)), (10, 30, (5, 6)), (10, 30, (9, 9, 9, 9))],
    ids=["rounds", "first", "rising", "more"],
)
def test_counts_that_cannot_be_are_named(
    drafts: int, drafted: int, accepted: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="got"):
        derive(drafts, drafted, accepted, draft_len=3)
