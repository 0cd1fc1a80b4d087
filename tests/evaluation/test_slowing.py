from __future__ import annotations

import pytest

from evaluation.client import Answer
from evaluation.samples import Sample, SpeedBlock
from evaluation.slowing import slowed
from speculation.records import Counts

TOKENS = 100


def measured(seconds: list[float], arm: str = "none") -> tuple[list[SpeedBlock], list[Sample]]:
    """Blocks of one answer of 100 tokens each, that took so long."""
    answer = Answer("p", "r", arm, 0, "", "stop", (), Counts(), 5, 0, TOKENS, 1.0, 0.0, 0.0, 1.0)
    blocks = [SpeedBlock(arm, 0.0, 1, number, took) for number, took in enumerate(seconds)]
    samples = [
        Sample("speed", arm, f"q{number}", 0.0, 1, number, answer) for number in range(len(seconds))
    ]
    return blocks, samples


def test_a_machine_that_is_half_as_fast_halfway_is_named_with_its_figures() -> None:
    found = slowed(*measured([1.0, 1.1, 0.9, 1.0, 2.0, 2.2, 1.9, 2.0]))
    assert list(found) == [(0.0, 1)]
    assert "100.0 tokens a second in the earlier half" in found[0.0, 1]
    assert "50.0 in the later" in found[0.0, 1]


@pytest.mark.parametrize(
    "seconds",
    [
        [1.0, 1.1, 0.9, 1.0, 1.3, 1.4, 1.2, 1.3],  # a drift, which ABBA cancels
        [1.0, 1.0, 1.0, 1.0, 1.0, 9.0, 1.0, 1.0],  # one hiccup
        [2.0, 1.0, 1.0, 2.1, 2.0, 2.0, 1.0, 1.8],  # noise all the while
        [2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0],  # it became faster
        [1.0, 1.0, 3.0, 3.0],  # too few to tell
        [0.03, 0.03, 0.03, 0.03, 0.09, 0.09, 0.09, 0.09],  # over before a machine can be told
        [],
    ],
    ids=["drift", "hiccup", "noise", "faster", "few", "short", "none"],
)
def test_what_is_no_slow_down_is_not_called_one(seconds: list[float]) -> None:
    assert not slowed(*measured(seconds))


def test_only_plain_decoding_is_the_yardstick() -> None:
    """A draft may lose its gain midway, as K adapts: that is for the gate."""
    assert not slowed(*measured([1.0] * 4 + [3.0] * 4, arm="candidate"))
