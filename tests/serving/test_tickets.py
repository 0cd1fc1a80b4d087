"""A group has one deadline, and one word for how each of it ended."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from serving.tickets import DeadlineError, Group, Ticket
from speculation.sequence import Event, Request
from tests.serving.fakes import FakePair


def group(clock: float, *names: str) -> tuple[Group, list[Ticket]]:
    cancelled: list[Ticket] = []
    events: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
    pair = FakePair().loaded
    tickets = tuple(
        Ticket(Request(name, (9,), 3), pair, 0.0, 0.0, events, place)
        for place, name in enumerate(names)
    )
    return Group(tickets, 10.0, cancelled.append, lambda: clock), cancelled


def test_time_that_is_over_ends_all_that_has_not_ended_also_beside_events_unread() -> None:
    async def story() -> None:
        late, cancelled = group(10.0, "a", "b", "c")
        late.tickets[1].ended = True
        late.tickets[0].events.put_nowait((0, Event("a", (7,))))
        with pytest.raises(DeadlineError):
            await late.next()
        late.give_up("gone")
        assert cancelled == [late.tickets[0], late.tickets[2]]  # each once
        assert [ticket.left for ticket in late.tickets] == ["deadline", None, "deadline"]

    asyncio.run(story())


def test_a_wait_for_an_event_is_no_longer_than_the_deadline() -> None:
    async def story() -> None:
        late, cancelled = group(9.95, "a")
        with pytest.raises(DeadlineError):
            await asyncio.wait_for(late.next(), 5)
        assert cancelled == list(late.tickets)

    asyncio.run(story())


def test_who_was_told_that_time_is_over_has_that_outcome_whatever_the_engine_says() -> None:
    ticket = group(0.0, "a")[0].tickets[0]
    done = Event("a", (7,), (), "length")
    assert ticket.outcome(done) == "length"
    ticket.left = "gone"
    assert ticket.outcome(done) == "length"
    ticket.left = "deadline"
    assert ticket.outcome(done) == "deadline"


def test_what_is_said_of_a_ticket_outlives_its_pair() -> None:
    ticket = group(0.0, "a")[0].tickets[0]
    pair = weakref.ref(ticket.loaded)
    ticket.end()
    gc.collect()
    assert ticket.ended
    assert pair() is None
    assert (ticket.pair, ticket.release, ticket.arm.name, ticket.draft_len) == (
        "pair",
        "d",
        "head",
        4,
    )
