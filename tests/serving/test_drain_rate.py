"""How fast the queue drains: by a clock that is handed in."""

from __future__ import annotations

import pytest

from serving.drain_rate import WINDOW_SECONDS, DrainRate, seconds_until


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


@pytest.mark.parametrize(
    ("freed", "running", "waiting", "seconds"),
    [
        (1, [50, 30], [40, 40], 6.0),  # when the shorter one ends, after 30 tokens of each row
        (40, [50, 30], [40, 40], 6.0),
        (41, [50, 30], [40, 40], 10.0),  # and then the other
        (81, [50, 30], [40, 40, 9], 14.0),  # and then the first that came after the shorter one
        (90, [50, 30], [40, 40], 11.0),  # ten more are still to be cut up into tokens
        (20, [], [40], 2.0),  # nobody has begun
    ],
)
def test_room_comes_when_slots_are_free(
    freed: int, running: list[int], waiting: list[int], seconds: float
) -> None:
    found = seconds_until(freed, running=running, waiting=waiting, rate=10.0)
    assert found == pytest.approx(seconds)
