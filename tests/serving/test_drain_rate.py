"""How fast the queue drains: by a clock that is handed in."""

from __future__ import annotations

import pytest

from serving.drain_rate import WINDOW_SECONDS, DrainRate


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_long_answer_drains_while_it_runs(clock: Clock) -> None:
    rate = DrainRate(clock)
    rate.begin()
    for _ in range(100):
        clock.now += 1
        rate.done(20)
    assert rate.per_second() == pytest.approx(20, rel=0.05)


def test_what_it_remembers_does_not_grow(clock: Clock) -> None:
    rate = DrainRate(clock)
    rate.begin()
    for _ in range(5000):
        clock.now += 0.05
        rate.done(1)
    assert len(rate._seconds) <= WINDOW_SECONDS + 2
    assert rate.per_second() == pytest.approx(20, rel=0.05)


def test_an_idle_night_does_not_make_the_morning_slow(clock: Clock) -> None:
    rate = DrainRate(clock)
    rate.begin()
    for _ in range(10):
        clock.now += 1
        rate.done(50)
    rate.idle()
    clock.now += 8 * 3600
    assert rate.per_second() == pytest.approx(50)
    rate.begin()
    clock.now += 0.1
    rate.done(1)
    assert rate.per_second() == pytest.approx(50)  # too little yet to say another
    for _ in range(5):
        clock.now += 1
        rate.done(10)
    assert rate.per_second() == pytest.approx(10, rel=0.1)


def test_before_anything_was_done_nothing_is_known(clock: Clock) -> None:
    rate = DrainRate(clock)
    assert rate.per_second() is None
    rate.begin()
    clock.now += 60
    assert rate.per_second() is None
