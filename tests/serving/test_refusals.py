"""How long a pair is left alone, and that no number of tries is too many."""

from __future__ import annotations

from serving.refusals import Again, Named, Refusals

PAIR = Named("p-1", "1", "registry")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def waits(again: Again, *, idle: bool, tries: int, longest: bool = False) -> list[float]:
    """Seconds from each refusal to the next try."""
    clock = Clock()
    refusals = Refusals(5.0, clock)
    found = list[float]()
    for _ in range(tries):
        refusals.refuse(PAIR, again, longest=longest)
        began = clock.now
        while not refusals.may_try(PAIR, idle=idle):
            clock.now += 5.0
            if clock.now - began > 10_000:
                return [*found, float("inf")]
        found.append(clock.now - began)
    return found


def test_what_only_asking_would_try_again_is_tried_now_and_then_where_nothing_is_served() -> None:
    assert waits(Again.ASKED, idle=False, tries=1) == [float("inf")]
    assert waits(Again.ASKED, idle=True, tries=8) == [10, 20, 40, 80, 160, 300, 300, 300]
    assert waits(Again.ASKED, idle=True, tries=2, longest=True) == [300, 300]


def test_waits_double_up_to_the_longest_for_as_many_tries_as_there_are() -> None:
    assert waits(Again.SOON, idle=False, tries=2000)[-1] == 300
    assert waits(Again.LATER, idle=False, tries=2000)[-1] == 3600


def test_who_asks_may_have_everything_tried_and_told_anew() -> None:
    refusals = Refusals(5.0, Clock())
    assert refusals.may_try(PAIR, idle=False)
    assert refusals.refuse(PAIR, Again.ASKED)
    assert not refusals.refuse(PAIR, Again.ASKED)
    assert refusals.known(PAIR)
    assert refusals.describe() == [{"pair": "p-1", "version": "1"}]
    refusals.forget()
    assert refusals.may_try(PAIR, idle=False)
    assert refusals.refuse(PAIR, Again.ASKED)
