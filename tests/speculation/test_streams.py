"""Draws follow their law and their key, and nothing else."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest

from speculation.streams import BITS, Key, draw, race

LAW = torch.tensor([0.5, 0.0, 0.3, 0.15, 0.05, 0.0])
ALPHA = 1e-6


def fits(tokens: torch.Tensor) -> float:
    counts = torch.bincount(tokens, minlength=len(LAW))
    assert counts[LAW == 0].sum() == 0
    common = LAW > 0
    expected = LAW[common].double()
    return float(chisquare(counts[common], expected / expected.sum() * len(tokens)).pvalue)


def test_drawn_tokens_follow_the_law() -> None:
    key = Key(1)
    uniforms = [key.uniform(place, 0, "pick") for place in range(20_000)]
    assert kstest(uniforms, "uniform").pvalue > ALPHA
    assert fits(draw(LAW.expand(20_000, -1), torch.tensor(uniforms))) > ALPHA


def test_raced_tokens_follow_the_law() -> None:
    noise = torch.stack([Key(7).exponentials(place, len(LAW)) for place in range(20_000)])
    assert fits(race(LAW, noise)) > ALPHA


def test_a_race_over_close_laws_mostly_agrees() -> None:
    other = torch.tensor([0.45, 0.05, 0.3, 0.15, 0.05, 0.0])
    noise = torch.stack([Key(7).exponentials(place, len(LAW)) for place in range(4000)])
    agreed = (race(LAW, noise) == race(other, noise)).float().mean()
    assert agreed > 0.9  # (1 - D) / (1 + D) = 0.905 at the least, D the total variation 0.05


@given(st.sampled_from([0.0, 1 - 2.0**-BITS]), st.integers(0, 5))
def test_the_ends_of_the_unit_interval_give_tokens_that_can_be(u: float, only: int) -> None:
    for law in (LAW, torch.nn.functional.one_hot(torch.tensor(only), 6).float()):
        token = int(draw(law[None], torch.tensor([u], dtype=torch.float64))[0])
        assert law[token] > 0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Key(1).uniform(5, 0, "pick"), Key(2).uniform(5, 0, "pick")),
        (Key(1).uniform(5, 0, "pick"), Key(1, choice=1).uniform(5, 0, "pick")),
        (Key(1).uniform(5, 0, "pick"), Key(1).uniform(6, 0, "pick")),
        (Key(1).uniform(5, 0, "pick"), Key(1).uniform(5, 1, "pick")),
        (Key(1).uniform(5, 0, "pick"), Key(1).uniform(5, 0, "accept")),
        (Key(1).uniform(1, 10, "pick"), Key(1).uniform(11, 0, "pick")),
    ],
)
def test_every_part_of_a_key_counts(one: float, other: float) -> None:
    assert one != other


def test_the_same_key_draws_the_same_in_every_process() -> None:
    assert Key(1).uniform(5, 0, "pick") == 0.16673586877540414
    assert Key(3).exponentials(4, 2).tolist() == pytest.approx(
        [0.6303267227593844, 1.979981628557121]
    )
