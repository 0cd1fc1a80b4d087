"""One thread that runs the engines, and the bridge between it and asyncio.

Knows engines, requests and events; knows nothing of text or HTTP. The engine is a plain loop: the
thread steps whatever has work, and everything that touches an engine or its target runs in it, so
that nothing of them need be safe for two threads. The event loop's side owns the queue's bounds.

A lane is one served pair with its engine and those waiting for it. Replacing the lane is a swap:
who came before stays in the old lane until done, and then the old lane is let go.
"""

from __future__ import annotations

import asyncio
import logging
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from serving.loading import Loaded
from serving.tickets import QueueFullError, Ticket
from speculation.records import Counts
from speculation.sequence import Event, Request

log = logging.getLogger("paceline.serving")

Result = TypeVar("Result")
RATE_WINDOW_SECONDS = 30.0  # over which the drain rate is taken
LONGEST_RETRY_SECONDS = 60


@dataclass
class _Lane:
    loaded: Loaded
    waiting: deque[Ticket] = field(default_factory=deque)
    inside: dict[str, Ticket] = field(default_factory=dict)  # by request id
    retired: Callable[[], None] | None = None  # called when a replaced lane is empty

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.inside)


class Worker:
    """Steps engines in its own thread. Every public method is for the event loop's thread."""

    def __init__(
        self,
        *,
        queue_tokens: int,
        ended: Callable[[Ticket, Event], None],  # called once per ticket, in the event loop
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.queue_tokens = queue_tokens
        self.current: Loaded | None = None  # the pair that new requests take
        self.dead: str | None = None  # why the thread can serve nothing any more
        self.tickets: set[Ticket] = set()  # not ended yet
        self._ended, self._clock = ended, clock
        self._waiting_tokens = 0
        self._finished: deque[tuple[float, int]] = deque()  # when, how many tokens
        self._loop = asyncio.get_running_loop()
        self._idle = asyncio.Event()
        self._idle.set()
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stopping = False
        # Only the thread touches these.
        self._lanes: list[_Lane] = []
        self._posts: list[tuple[Ticket, Event | float]] = []
        self._thread = threading.Thread(target=self._run, name="paceline-engine", daemon=True)
        self._thread.start()

    # The event loop's side

    def submit(self, request: Request, loaded: Loaded, *, counted: bool = True) -> Ticket:
        """Queue `request` for `loaded`, whose lane must be open. Raises QueueFullError."""
        ticket = Ticket(request, loaded, time.time(), self._clock(), counted=counted)
        # One that finds nobody waiting is let in whatever it costs: refusing it would gain nothing.
        full = self._waiting_tokens and self._waiting_tokens + ticket.tokens > self.queue_tokens
        if full and counted:
            raise QueueFullError(self.retry_seconds())
        self._waiting_tokens += ticket.tokens
        self.tickets.add(ticket)
        self._idle.clear()
        self._commands.put(lambda: self._enter(ticket))
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """End a request at the next step. One that has ended is left alone."""
        self._commands.put(lambda: self._cancel(ticket))

    async def event(self, ticket: Ticket) -> Event:
        """The ticket's next event."""
        return (await ticket.events.get())[1]

    async def call(self, job: Callable[[], Result]) -> Result:
        """Run `job` in the engine's thread, between two steps."""
        future: asyncio.Future[Result] = self._loop.create_future()

        def run() -> None:
            try:
                result = job()
            except Exception as error:  # it is raised where the job was asked for
                self._to_loop(partial(_fail, future, error))
            else:
                self._to_loop(partial(_fulfil, future, result))

        self._commands.put(run)
        return await future

    async def open(self, loaded: Loaded) -> None:
        """Start `loaded` in a lane beside the current one: nobody is sent to it yet."""

        def start() -> None:
            loaded.start()
            self._lanes.append(_Lane(loaded))

        await self.call(start)

    def switch(self, loaded: Loaded) -> asyncio.Future[None]:
        """Send new requests to `loaded`. The future is done when the pair before it is let go."""
        before, self.current = self.current, loaded
        gone: asyncio.Future[None] = self._loop.create_future()
        if before is None:
            gone.set_result(None)
        else:
            self._commands.put(lambda: self._retire(before, gone))
        return gone

    async def close(self, loaded: Loaded) -> None:
        """Let go of a lane that was opened and is not wanted."""
        gone: asyncio.Future[None] = self._loop.create_future()
        self._commands.put(lambda: self._retire(loaded, gone))
        await gone

    async def drained(self) -> None:
        """Wait until every ticket has ended."""
        await self._idle.wait()

    def cancel_all(self) -> None:
        for ticket in self.tickets:
            self.cancel(ticket)

    def stop(self, *, timeout_seconds: float = 10.0) -> None:
        """End the thread after the step it is in. What is in the engines is lost."""
        self._stopping = True
        self._commands.put(lambda: None)
        self._thread.join(timeout_seconds)

    def age_seconds(self, ticket: Ticket) -> float:
        """Since the ticket arrived."""
        return self._clock() - ticket.arrived

    def retry_seconds(self) -> int:
        """Whole seconds until the queue should have room, from how fast it drains."""
        now = self._clock()
        while self._finished and self._finished[0][0] < now - RATE_WINDOW_SECONDS:
            self._finished.popleft()
        if not self._finished:
            return 1
        span = max(now - self._finished[0][0], 1.0)
        rate = sum(tokens for _, tokens in self._finished) / span
        return min(max(math.ceil(self._waiting_tokens / rate), 1), LONGEST_RETRY_SECONDS)

    def _deliver(self, posts: list[tuple[Ticket, Event | float]]) -> None:
        for ticket, post in posts:
            if not ticket.begun:
                ticket.begun = True
                self._waiting_tokens -= ticket.tokens
            if isinstance(post, float):
                ticket.waiting_seconds = post
                continue
            if post.token_ids and ticket.first_token_seconds is None:
                ticket.first_token_seconds = self._clock() - ticket.arrived
            if ticket.ended:
                continue
            ticket.emitted += post.token_ids
            ticket.events.put_nowait((ticket.place, post))
            if post.outcome is not None:
                ticket.ended = True
                self.tickets.discard(ticket)
                if post.counts is not None:
                    spent = len(ticket.request.prompt_ids) + post.counts.emitted
                    self._finished.append((self._clock(), spent))
                if not self.tickets:
                    self._idle.set()
                self._ended(ticket, post)

    # The thread's side

    def _run(self) -> None:
        while not self._stopping:
            busy = any(lane.busy for lane in self._lanes)
            try:
                command = self._commands.get(block=not busy)
            except queue.Empty:
                pass
            else:
                command()
                continue  # all commands before the next step
            for lane in self._lanes:
                if lane.busy:
                    self._step(lane)
            self._let_go()
            self._post()
        self._lanes.clear()

    def _enter(self, ticket: Ticket) -> None:
        for lane in self._lanes:
            if lane.loaded is ticket.loaded:
                lane.waiting.append(ticket)
                return
        self._fail(ticket, "its pair is gone")
        self._post()

    def _cancel(self, ticket: Ticket) -> None:
        for lane in self._lanes:
            if ticket in lane.waiting:
                lane.waiting.remove(ticket)
                self._posts.append(
                    (ticket, Event(ticket.request.id, (), (), "cancelled", Counts()))
                )
                self._let_go()
                self._post()
            elif ticket.request.id in lane.inside:
                lane.loaded.engine.cancel(ticket.request.id)

    def _retire(self, loaded: Loaded, gone: asyncio.Future[None]) -> None:
        def tell() -> None:
            self._to_loop(partial(_fulfil, gone, None))

        for lane in self._lanes:
            if lane.loaded is loaded:
                lane.retired = tell
                break
        else:
            tell()
        self._let_go()

    def _let_go(self) -> None:
        for lane in [lane for lane in self._lanes if lane.retired and not lane.busy]:
            self._lanes.remove(lane)
            assert lane.retired is not None
            lane.retired()

    def _step(self, lane: _Lane) -> None:
        engine = lane.loaded.engine
        try:
            while lane.waiting and engine.running + engine.waiting < engine.slots:
                self._admit(lane, lane.waiting.popleft())
            events = engine.step()
        except Exception as error:  # the worker's edge: other lanes and later requests go on
            self._broken(lane, error)
            return
        for event in events:
            ticket = lane.inside[event.id]
            self._posts.append((ticket, event))
            if event.outcome is not None:
                del lane.inside[event.id]

    def _admit(self, lane: _Lane, ticket: Ticket) -> None:
        try:
            lane.loaded.engine.submit(ticket.request)
        except ValueError as error:  # the door should have refused it
            self._fail(ticket, str(error))
            return
        lane.inside[ticket.request.id] = ticket
        self._posts.append((ticket, max(self._clock() - ticket.arrived, 0.0)))

    def _broken(self, lane: _Lane, error: Exception) -> None:
        """A step failed: those inside end with an error, and the engine starts over, empty."""
        log.exception(
            "a step of pair %s failed; %d requests end", lane.loaded.pair, len(lane.inside)
        )
        for ticket in lane.inside.values():
            self._fail(ticket, type(error).__name__)
        lane.inside.clear()
        try:
            lane.loaded.restart()
        except Exception as fatal:  # nobody is above this thread: who waits has to be told
            log.exception("the engine of pair %s cannot be made again", lane.loaded.pair)
            for ticket in lane.waiting:
                self._fail(ticket, type(fatal).__name__)
            lane.waiting.clear()
            reason = f"{type(fatal).__name__} while the engine was made again"
            self._to_loop(lambda: setattr(self, "dead", reason))

    def _fail(self, ticket: Ticket, why: str) -> None:
        log.error("request %s ends with an error: %s", ticket.request.id, why)
        self._posts.append((ticket, Event(ticket.request.id, (), (), "error", Counts())))

    def _post(self) -> None:
        if self._posts:
            posts, self._posts = self._posts, []
            self._to_loop(lambda: self._deliver(posts))

    def _to_loop(self, callback: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:  # the loop is closed: the server has ended
            self._stopping = True


def _fulfil(future: asyncio.Future[Result], result: Result) -> None:
    if not future.done():  # whoever waited may have gone
        future.set_result(result)


def _fail(future: asyncio.Future[Result], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
