"""The event loop's side of the engines: who waits, how many may, what each is told, what is dead.

Knows tickets, groups and the queue's bounds; the thread that steps engines is `lanes`. Every public
method is for the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar
from weakref import WeakKeyDictionary

from serving.drain_rate import DrainRate, seconds_until
from serving.edge import where
from serving.lanes import ANSWERED, Lanes, OnFault, Post, told
from serving.loading import Loaded
from serving.passing import raisable
from serving.tickets import Group, QueueFullError, Ticket
from speculation.records import Counts
from speculation.sequence import Event, Request

log = logging.getLogger("paceline.serving")

Result = TypeVar("Result")
LONGEST_RETRY_SECONDS = 60
STOP_SECONDS = 10.0  # for the thread to come back from its last step
STUCK_SECONDS = 120.0  # for one step of an engine; it cannot be interrupted, only reported


class Worker:
    """Hands requests to the engines' thread, and their events to who asked."""

    def __init__(
        self,
        *,
        queue_tokens: int,
        ended: Callable[[Ticket, Event], None],  # called once per ticket, in the event loop
        failing: Callable[[Loaded], None] = lambda loaded: None,  # a lane answers no more
        on_fault: OnFault = lambda loaded, drafter, fault: None,  # in the engines' thread
        stuck_seconds: float = STUCK_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.queue_tokens = queue_tokens
        self.current: Loaded | None = None  # the pair that new requests take
        self.tickets: set[Ticket] = set()  # not ended yet
        self.waiting_tokens = 0  # of tickets that no engine has yet, and of texts to be tokenised
        self.clock = clock
        self._coming = 0  # requests whose texts are still to be tokenised
        self._ended, self._on_failing, self._stuck_seconds = ended, failing, stuck_seconds
        self._rate = DrainRate(clock)
        self._died: str | None = None
        # Why a pair's lane answers no more, and whether its engine is there at all. Weakly: this
        # must not keep a pair that was let go.
        self._failing: WeakKeyDictionary[Loaded, tuple[str, bool]] = WeakKeyDictionary()
        self._loop = asyncio.get_running_loop()
        self._idle = asyncio.Event()
        self._idle.set()
        self._lanes = Lanes(
            tell=self._tell,
            deliver=self._deliver,
            failing=self._lane_failed,
            died=self._thread_died,
            on_fault=on_fault,
            clock=clock,
        )

    @property
    def dead(self) -> str | None:
        """Why nothing can be served any more, unless the process is started again; None if not."""
        if self._died is not None:
            return self._died
        if not self._lanes.alive:
            return "the engines' thread has ended"
        if (seconds := self._lanes.busy_seconds()) > self._stuck_seconds:
            return f"a step has not come back for {seconds:.0f} s"
        found = None if self.current is None else self._failing.get(self.current)
        return found[0] if found is not None and not found[1] else None

    @property
    def failing(self) -> str | None:
        """Why the current pair answers nothing for now; None when it does."""
        found = None if self.current is None else self._failing.get(self.current)
        return None if found is None else found[0]

    @property
    def running(self) -> int:
        """Requests accepted and not ended, probes apart."""
        return sum(ticket.counted for ticket in self.tickets)

    @property
    def waiting(self) -> int:
        """Of those, the ones that no engine has yet."""
        return sum(ticket.counted and not ticket.begun for ticket in self.tickets)

    @contextmanager
    def room(self, tokens: int) -> Iterator[None]:
        """Hold a place in the queue for what is still to become tickets. Raises QueueFullError."""
        # One that finds nobody waiting, or a slot for itself, is let in whatever it costs: refusing
        # it would gain nothing.
        ahead, slots = len(self.tickets) + self._coming, self.current.slots if self.current else 0
        full = self.waiting_tokens and self.waiting_tokens + tokens > self.queue_tokens
        if full and ahead >= slots:
            raise QueueFullError(self.retry_seconds(tokens))
        self.waiting_tokens += tokens
        self._coming += 1
        try:
            yield
        finally:
            self.waiting_tokens -= tokens
            self._coming -= 1

    def submit(
        self,
        requests: Sequence[Request],
        loaded: Loaded,
        *,
        arrived: float | None = None,  # by the clock; None: now
        deadline_seconds: float = math.inf,  # from then on
        counted: bool = True,
    ) -> Group:
        """Queue `requests` for `loaded`, whose lane must be open: all or none. Whether there is
        room, `room` has said."""
        now = self.clock()
        arrived = now if arrived is None else arrived
        started = time.time() - (now - arrived)
        events: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        tickets = tuple(
            Ticket(request, loaded, started, arrived, events, place, len(requests), counted=counted)
            for place, request in enumerate(requests)
        )
        self._idle.clear()
        self._rate.begin()
        for ticket in tickets:
            self.waiting_tokens += ticket.tokens
            self.tickets.add(ticket)
            self._lanes.put(partial(self._lanes.enter, ticket))
        return Group(tickets, arrived + deadline_seconds, self.cancel, self.clock)

    def cancel(self, ticket: Ticket) -> None:
        """End a request at the next step. One that has ended is left alone."""
        self._lanes.put(partial(self._lanes.cancel, ticket))

    def cancel_all(self) -> None:
        """End everybody: the server ends."""
        for ticket in self.tickets:
            ticket.left = ticket.left or "ended"
            self.cancel(ticket)

    async def call(self, job: Callable[[], Result]) -> Result:
        """Run `job` in the engines' thread, between two steps. Raises LaneError, or as it does."""
        future: asyncio.Future[Result] = self._loop.create_future()

        def run() -> None:
            try:
                self._lanes.alone()
                result = job()
            except BaseException as error:  # it is raised where the job was asked for
                self._tell(partial(_fail, future, raisable(error)))
            else:
                self._tell(partial(_fulfil, future, result))

        self._lanes.put(run)
        return await future

    async def open(self, loaded: Loaded) -> None:
        """Start `loaded` in a lane beside the current one: nobody is sent to it yet."""
        await self.call(lambda: self._lanes.open(loaded))

    def switch(self, loaded: Loaded) -> asyncio.Future[None]:
        """Send new requests to `loaded`. The future is done when the pair before it is let go."""
        before, self.current = self.current, loaded
        if before is None:
            gone: asyncio.Future[None] = self._loop.create_future()
            gone.set_result(None)
            return gone
        return self.close(before)

    def close(self, loaded: Loaded) -> asyncio.Future[None]:
        """Let go of a lane that takes no more requests, once those in it have ended."""
        gone: asyncio.Future[None] = self._loop.create_future()
        self._lanes.put(
            lambda: self._lanes.retire(loaded, lambda: self._tell(partial(_fulfil, gone, None)))
        )
        return gone

    async def revive(self, loaded: Loaded) -> None:
        """Make the engine of a lane that is dead again. Raises as that does."""
        await self.call(lambda: self._lanes.revive(loaded))

    def answers(self, loaded: Loaded) -> None:
        """A pair that was failing has answered."""
        self._failing.pop(loaded, None)

    async def drained(self) -> None:
        """Wait until every ticket has ended."""
        await self._idle.wait()

    def stop(self) -> None:
        """End the thread after the step it is in. What is in the engines is lost."""
        self._lanes.stop(timeout_seconds=STOP_SECONDS)

    def age_seconds(self, ticket: Ticket) -> float:
        """Since the ticket arrived."""
        return self.clock() - ticket.arrived

    def retry_seconds(self, tokens: int) -> int:
        """Whole seconds until the queue should have room for `tokens`, from how fast it drains."""
        rate = self._rate.per_second()
        if rate is None:
            return 1
        line = sorted(self.tickets, key=lambda ticket: ticket.arrived)
        seconds = seconds_until(
            min(self.waiting_tokens + tokens - self.queue_tokens, self.waiting_tokens),
            running=[ticket.tokens_left for ticket in line if ticket.begun],
            waiting=(ticket.tokens for ticket in line if not ticket.begun),
            rate=rate,
        )
        return min(max(math.ceil(seconds), 1), LONGEST_RETRY_SECONDS)

    # What the thread tells

    def _deliver(self, posts: list[Post]) -> None:
        for ticket, post in posts:
            if ticket.ended:
                continue
            if not ticket.begun:
                ticket.begun = True
                self.waiting_tokens -= ticket.tokens
            if isinstance(post, float):
                ticket.waiting_seconds = post
            else:
                self._event(ticket, post)

    def _event(self, ticket: Ticket, event: Event) -> None:
        done = len(event.token_ids)
        if event.token_ids and ticket.first_token_seconds is None:
            ticket.first_token_seconds = self.clock() - ticket.arrived
            done += len(ticket.request.prompt_ids)
        ticket.emitted += event.token_ids
        if event.outcome is None:
            self._rate.done(done)
            ticket.events.put_nowait((ticket.place, event))
            return
        if event.outcome in ANSWERED:  # what it did not need is not to be waited for either
            done += ticket.request.max_tokens - len(ticket.emitted)
        self._rate.done(done)
        ticket.end()
        ticket.events.put_nowait((ticket.place, event))
        self.tickets.discard(ticket)
        if not self.tickets:
            self._idle.set()
            self._rate.idle()
        try:
            self._ended(ticket, event)
        except Exception as error:  # counting one must not cost the others their answers
            named = ticket.request.id
            log.error("request %s could not be counted: %s\n%s", named, told(error), where(error))

    def _lane_failed(self, loaded: Loaded, why: str, mended: bool) -> None:
        self._failing[loaded] = why, mended
        self._on_failing(loaded)

    def _thread_died(self, why: str) -> None:
        self._died = why
        lost = sorted(self.tickets, key=lambda ticket: ticket.arrived)
        self._deliver(
            [(ticket, Event(ticket.request.id, (), (), "error", Counts())) for ticket in lost]
        )

    def _tell(self, callback: Callable[[], object]) -> bool:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:  # the loop is closed: the server has ended
            return False
        return True


def _fulfil(future: asyncio.Future[Result], result: Result) -> None:
    if not future.done():  # whoever waited may have gone
        future.set_result(result)


def _fail(future: asyncio.Future[Result], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
