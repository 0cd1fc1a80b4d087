from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from evaluation.policy import Policy
from evaluation.spending import Looks, at_look, critical_values, planned, told

FIVE = (0.2, 0.4, 0.6, 0.8, 1.0)
# One-sided 0.025 at five even looks; the values that every text on the matter prints.
PUBLISHED = {
    "O'Brien and Fleming": (4.877, 3.357, 2.680, 2.290, 2.031),
    "Pocock": (2.438, 2.427, 2.410, 2.397, 2.386),
}
SPENT = {
    "O'Brien and Fleming": [
        float(2 * stats.norm.sf(stats.norm.isf(0.0125) / math.sqrt(share))) for share in FIVE
    ],
    "Pocock": [0.025 * math.log(1 + (math.e - 1) * share) for share in FIVE],
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_critical_values_are_the_published_ones(name: str) -> None:
    found = critical_values(FIVE, tuple(SPENT[name]))
    assert found == pytest.approx(PUBLISHED[name], abs=0.001)


def test_one_look_is_the_plain_test() -> None:
    assert Looks(1, (256,)).alpha(0.05) == pytest.approx(0.05)
    assert at_look(Policy(), None) == Policy()


def test_all_looks_together_cross_with_the_chance_that_was_given() -> None:
    looks = (64, 100, 220, 256)  # they need not be even
    levels = [Looks(number, looks).alpha(0.05) for number in range(1, 5)]
    steps = np.sqrt(np.diff((0, *looks)))
    walk = np.cumsum(np.random.default_rng(0).standard_normal((40_000, 4)) * steps, axis=1)
    crossed = walk / np.sqrt(looks) > stats.norm.isf(levels)
    share = crossed.any(axis=1).mean()
    assert share == pytest.approx(0.05, abs=4 * math.sqrt(0.05 * 0.95 / 40_000))
    naive = (walk / np.sqrt(looks) > stats.norm.isf(0.05)).any(axis=1).mean()
    assert naive > 0.09


def test_later_looks_have_more_and_the_last_keeps_most_of_its_level() -> None:
    levels = [Looks(number, (64, 128, 192, 256)).alpha(0.05) for number in range(1, 5)]
    assert levels == sorted(levels)
    assert levels[-1] > 0.75 * 0.05
    assert at_look(Policy(alpha=0.05), Looks(2, (64, 128, 192, 256))).alpha == levels[1]


def test_looks_are_even_and_none_comes_before_there_is_enough() -> None:
    assert planned(256, 4, least=20) == (64, 128, 192, 256)
    assert planned(50, 4, least=20) == (25, 50)
    assert planned(10, 4, least=20) == (10,)
    assert planned(7, 7, least=1) == (1, 2, 3, 4, 5, 6, 7)


@pytest.mark.parametrize(
    "given", [(0, (5, 10)), (3, (5, 10)), (1, ()), (1, (10, 5)), (1, (0, 5)), (2, (5, 5))]
)
def test_looks_that_cannot_be_are_refused(given: tuple[int, tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match="wanted prompts that rise"):
        Looks(*given)


def test_people_are_told_the_look_and_its_level() -> None:
    assert told(None, 0.05) == told(Looks(1, (9,)), 0.05) == ""
    said = told(Looks(2, (64, 128, 192, 256)), 0.05)
    assert said.startswith("look 2 of at most 4, each bound at 0.0107")
