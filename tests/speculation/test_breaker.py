"""A drafter that fails is left alone, tried by one request, and taken back when it is well."""

from __future__ import annotations

import pytest

from speculation.breaker import Breaker, Slowness, State


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(clock, faults=3, window=20, proving=4, cool_down_seconds=10, longest_seconds=35)


def fail(breaker: Breaker, times: int = 3) -> None:
    for _ in range(times):
        breaker.record("exception", "RuntimeError at propose")


def test_it_opens_at_the_third_fault_in_a_window_and_not_before(breaker: Breaker) -> None:
    fail(breaker, 2)
    assert (breaker.state, breaker.allow("a")) == (State.CLOSED, True)
    fail(breaker, 1)
    assert (breaker.state, breaker.allow("a")) == (State.OPEN, False)
    assert breaker.opened == 1


@pytest.mark.parametrize(("between", "state"), [(9, State.CLOSED), (8, State.OPEN)])
def test_faults_count_while_they_are_in_the_window(
    breaker: Breaker, between: int, state: State
) -> None:
    """Three faults, the first and the last 2 * between + 2 proposals apart; the window has 20."""
    for _ in range(3):
        breaker.record("nan", "")
        for _ in range(between):
            breaker.success()
    assert breaker.state is state


@pytest.mark.parametrize("kind", ["slow", "memory"])
def test_slowness_and_memory_open_it_at_once(breaker: Breaker, kind: str) -> None:
    breaker.record(kind, "")  # type: ignore[arg-type]
    assert breaker.state is State.OPEN


def test_after_the_cool_down_one_request_tries_and_no_other(clock: Clock, breaker: Breaker) -> None:
    fail(breaker)
    clock.now += 9.9
    assert not breaker.allow("a")
    clock.now += 0.1
    assert breaker.state is State.HALF_OPEN
    assert [breaker.allow(name) for name in ("a", "b", "a", "c")] == [True, False, True, False]


def test_a_trial_that_goes_well_for_long_enough_closes_it(clock: Clock, breaker: Breaker) -> None:
    fail(breaker)
    clock.now += 10
    for _ in range(4):
        assert breaker.allow("a")
        assert breaker.state is State.HALF_OPEN
        breaker.success()
    assert breaker.state is State.CLOSED
    assert breaker.allow("b")
    fail(breaker, 2)  # what was before is forgotten
    assert breaker.state is State.CLOSED


def test_short_requests_prove_it_together(clock: Clock, breaker: Breaker) -> None:
    fail(breaker)
    clock.now += 10
    for name in ("a", "b", "c", "d"):
        assert breaker.allow(name)
        breaker.success()
        breaker.release(name)
    assert breaker.state is State.CLOSED


def test_a_trial_that_fails_doubles_the_cool_down_up_to_the_limit(
    clock: Clock, breaker: Breaker
) -> None:
    fail(breaker)
    for wait in (10, 20, 35, 35):
        clock.now += wait - 0.1
        assert breaker.state is State.OPEN
        clock.now += 0.1
        assert breaker.allow("a")
        breaker.success()  # not enough, and forgotten
        breaker.success()
        breaker.success()
        fail(breaker, 1)
    assert breaker.state is State.OPEN
    assert breaker.opened == 5


def reopen(clock: Clock, breaker: Breaker, good: int) -> float:
    """Open it, prove it, let it go well `good` times, open it again: how long it then waits."""
    fail(breaker)
    clock.now += breaker.cool_down_seconds
    assert breaker.allow("a")
    for _ in range(4 + good):
        breaker.success()
    fail(breaker)
    began = clock.now
    while breaker.state is State.OPEN:
        clock.now += 1
    return clock.now - began


@pytest.mark.parametrize(("good", "wait"), [(5, 20), (19, 20), (20, 10)])
def test_the_cool_down_is_short_again_only_after_a_whole_window_went_well(
    clock: Clock, breaker: Breaker, good: int, wait: float
) -> None:
    assert reopen(clock, breaker, good) == wait


def test_a_trial_that_is_not_heard_of_again_makes_room_for_another(
    clock: Clock, breaker: Breaker
) -> None:
    fail(breaker)
    clock.now += 10
    assert breaker.allow("a")
    clock.now += 19.9
    assert not breaker.allow("b")
    clock.now += 0.1
    assert breaker.allow("b")
    assert not breaker.allow("a")


def test_a_trial_follows_its_new_name(clock: Clock, breaker: Breaker) -> None:
    fail(breaker)
    clock.now += 10
    assert breaker.allow(3)
    breaker.rename(3, 1)
    assert [breaker.allow(3), breaker.allow(1)] == [False, True]


def test_faults_are_kept_with_their_time_and_counted_for_ever(
    clock: Clock, breaker: Breaker
) -> None:
    for number in range(100):
        clock.now = number
        breaker.record("nan" if number % 2 else "width", f"the {number}th")
    assert len(breaker.recent) == 32
    assert (breaker.recent[-1].kind, breaker.recent[-1].at) == ("nan", 99)
    assert breaker.counts == {"nan": 50, "width": 50}


def test_slow_is_many_rounds_in_a_row_not_one_in_which_a_prompt_was_read() -> None:
    slowness = Slowness(factor=10, rounds=8)
    slow, fine = (1.01, 0.1), (1.0, 0.1)
    assert not any(slowness.too_slow(*slow) for _ in range(7))
    assert not slowness.too_slow(*fine)
    assert [slowness.too_slow(*slow) for _ in range(8)] == [False] * 7 + [True]
    assert not slowness.too_slow(*slow)  # it counts anew
