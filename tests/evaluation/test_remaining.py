from __future__ import annotations

import math

import pytest

from evaluation.remaining import Remaining

ACCEPTANCE, ALONE, CROWD = ("acceptance", "none", 4), ("speed", "none", 1), ("speed", "none", 4)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_nothing_is_said_before_anything_is_known() -> None:
    assert Remaining([ACCEPTANCE], Clock()).seconds is None


def test_each_kind_is_reckoned_at_its_own_pace() -> None:
    clock = Clock()
    left = Remaining([ACCEPTANCE] * 10 + [ALONE] * 10, clock)
    for _ in range(5):
        clock.now += 0.5
        left.finished(ACCEPTANCE)
    for _ in range(5):
        clock.now += 4.0
        left.finished(ALONE)
    assert left.seconds == pytest.approx(5 * 0.5 + 5 * 4.0)
    assert left.elapsed == pytest.approx(22.5)


def test_an_arm_that_has_not_begun_is_taken_to_be_as_fast_as_the_others() -> None:
    clock = Clock()
    left = Remaining([ALONE, ("speed", "candidate", 1), ACCEPTANCE], clock)
    clock.now += 1.0
    left.finished(ACCEPTANCE)
    clock.now += 3.0
    left.finished(ALONE)
    assert left.seconds == pytest.approx(3.0)


def test_a_load_that_has_not_begun_is_guessed_between_no_gain_and_all_gain_of_batching() -> None:
    clock = Clock()
    left = Remaining([ACCEPTANCE, ALONE, CROWD], clock)
    clock.now += 1.0
    left.finished(ACCEPTANCE)
    assert left.seconds == pytest.approx(1.0 + math.sqrt(4))


def test_at_the_end_nothing_is_left() -> None:
    clock = Clock()
    left = Remaining([ACCEPTANCE], clock)
    clock.now += 1.0
    left.finished(ACCEPTANCE)
    assert left.seconds == 0
