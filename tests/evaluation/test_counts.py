"""What an endpoint says of its own counts is believed only where it can be true."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.consistency import inconsistency
from speculation.records import Counts, pool

TRUE = Counts(10, 1, 38, 30, (10, 8, 6, 3), (8, 6, 4, 2))  # two short rounds: 38 of 40 drafted


def test_counts_that_can_be_are_believed() -> None:
    assert inconsistency(TRUE, 30, 4) is None
    assert inconsistency(Counts(plain_forwards=5, emitted=5), 5, 4) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"accepted_per_position": (11, 6, 4, 2)}, "more accepted"),
        ({"judged_per_position": (10, 9, 6, 3)}, "after accepting"),
        ({"judged_per_position": (9, 8, 6, 3)}, "9 first tokens judged in 10 rounds"),
        ({"judged_per_position": (10, 6, 4, 3), "accepted_per_position": (8, 4, 4, 2)}, "3 tokens"),
        ({"drafted": 41}, "41 drafted"),
        ({"emitted": 32}, "32 emitted"),
        ({"rounds": -1}, "negative"),
        ({"rounds": 0, "drafted": 0, "judged_per_position": (), "accepted_per_position": ()}, "by"),
    ],
)
def test_counts_that_cannot_be_are_named(change: dict[str, Any], said: str) -> None:
    found = inconsistency(replace(TRUE, **change), 30, 4)
    assert found is not None
    assert said in found


@st.composite
def rounds(draw: st.DrawFn) -> Counts:
    """One round of up to four drafted tokens, as the engine counts it."""
    drafted = draw(st.integers(1, 4))
    accepted = draw(st.integers(0, drafted))
    judged = min(accepted + 1, drafted)
    return Counts(
        1,
        0,
        drafted,
        accepted + 1,
        tuple(int(place < judged) for place in range(4)),
        tuple(int(place < accepted) for place in range(4)),
    )


@given(st.lists(rounds(), max_size=30), st.integers(0, 2))
def test_whatever_honest_rounds_add_up_to_is_believed(each: list[Counts], cut: int) -> None:
    whole = pool(each)
    emitted = max(0, whole.emitted - cut)  # the end may cut into the last block
    assert inconsistency(replace(whole, emitted=emitted), emitted, 4) is None
