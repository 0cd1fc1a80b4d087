"""The thread that runs the engines: a plain loop over lanes, and whatever is asked of it between.

Knows engines, tickets and what fails in them; knows nothing of asyncio but how to tell its loop.
Everything that touches an engine or its target runs here, so that nothing of them need be safe for
two threads.

A lane is one served pair with its engine and those waiting for it. What fails in a lane ends those
inside it and nobody else; what fails outside every lane ends the thread's work for good, and
everybody is told.
"""

from __future__ import annotations

import logging
import queue
import threading
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from serving.loading import Loaded
from serving.tickets import Ticket
from speculation.breaker import DrafterFault
from speculation.records import Counts
from speculation.sequence import Event

log = logging.getLogger("paceline.serving")

MOST_FAILURES = 3  # steps of a lane that fail with no answer between: it serves nothing then
ANSWERED = frozenset({"stop", "length"})
Post = tuple[Ticket, Event | float]  # an event, or the seconds that it waited for a slot
OnFault = Callable[[Loaded, str, DrafterFault], None]


class LaneError(RuntimeError):
    """What was asked of the engines' thread could not be done."""


@dataclass
class _Lane:
    loaded: Loaded
    waiting: deque[Ticket] = field(default_factory=deque)
    inside: dict[str, Ticket] = field(default_factory=dict)  # by request id
    retired: Callable[[], object] | None = None  # called when a replaced lane is empty
    failures: int = 0  # steps that failed since the last answer
    broken: bool = False  # its engine could not be made again

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.inside)


class Lanes:
    """Steps whatever has work. What is public is for other threads, but for `on_fault`'s caller.

    `tell` hands a callback to the event loop and is false once there is none any more.
    """

    def __init__(
        self,
        *,
        tell: Callable[[Callable[[], object]], bool],
        deliver: Callable[[list[Post]], None],
        failing: Callable[[Loaded, str, bool], None],  # the reason, and whether it can go on
        died: Callable[[str], None],
        on_fault: OnFault,
        clock: Callable[[], float],
    ) -> None:
        self._tell, self._deliver, self._failing, self._died = tell, deliver, failing, died
        self._on_fault, self._clock = on_fault, clock
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stopping = False
        self._began: float | None = None  # the step or command that runs; None: it waits
        # Only the thread touches these.
        self._lanes: list[_Lane] = []
        self._posts: list[Post] = []
        self._dead = False
        self._thread = threading.Thread(target=self._run, name="paceline-engine", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def busy_seconds(self) -> float:
        """For how long the thread has been in one step or command."""
        began = self._began
        return 0.0 if began is None else self._clock() - began

    def put(self, command: Callable[[], None]) -> None:
        """Run `command` in the thread, between two steps."""
        self._commands.put(command)

    def stop(self, *, timeout_seconds: float) -> None:
        """End the thread after the step it is in. What is in the engines is lost."""
        self._stopping = True
        self._commands.put(lambda: None)
        self._thread.join(timeout_seconds)

    # Commands: they run in the thread

    def alone(self) -> None:
        """Raises LaneError where the thread can do nothing any more."""
        if self._dead:
            raise LaneError("the engines' thread has failed")

    def open(self, loaded: Loaded) -> None:
        """Start `loaded` in a lane of its own."""
        self.alone()
        loaded.start(lambda drafter, fault: self._on_fault(loaded, drafter, fault))
        self._lanes.append(_Lane(loaded))

    def revive(self, loaded: Loaded) -> None:
        """Make the engine of a broken lane again."""
        self.alone()
        for lane in self._lanes:
            if lane.loaded is loaded and lane.broken:
                loaded.restart()
                lane.broken = False

    def enter(self, ticket: Ticket) -> None:
        """Queue a ticket in its lane."""
        for lane in self._lanes:
            if lane.loaded is ticket.loaded and not lane.broken:
                lane.waiting.append(ticket)
                return
        self._fail(ticket, "its pair is gone")
        self._post()

    def cancel(self, ticket: Ticket) -> None:
        """End a ticket, wherever it is; one that has ended is left alone."""
        for lane in list(self._lanes):
            if ticket in lane.waiting:
                lane.waiting.remove(ticket)
                last = Event(ticket.request.id, (), (), "cancelled", Counts())
                self._posts.append((ticket, last))
                self._let_go()
                self._post()
            elif ticket.request.id in lane.inside:
                lane.loaded.engine.cancel(ticket.request.id)

    def retire(self, loaded: Loaded, gone: Callable[[], object]) -> None:
        """Let a lane go once it is empty, and call `gone` then."""
        for lane in self._lanes:
            if lane.loaded is loaded:
                lane.retired = gone
                break
        else:
            gone()
        self._let_go()

    # The loop

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._turn()
            except BaseException as error:  # nobody is above this thread: who waits has to be told
                self._die(error)
        self._lanes.clear()

    def _turn(self) -> None:
        self._began = None
        try:
            command = self._commands.get(block=not any(lane.busy for lane in self._lanes))
        except queue.Empty:
            pass
        else:
            self._began = self._clock()
            command()
            return  # all commands before the next step
        for lane in self._lanes:
            if lane.busy:
                self._began = self._clock()
                self._step(lane)
        self._let_go()
        self._post()

    def _step(self, lane: _Lane) -> None:
        try:
            engine = lane.loaded.engine
            while lane.waiting and engine.running + engine.waiting < engine.slots:
                self._admit(lane, lane.waiting.popleft())
            events = engine.step()
        except Exception as error:  # the lane's edge: other lanes and later requests go on
            self._broken(lane, error)
            return
        for event in events:
            ticket = lane.inside[event.id]
            self._posts.append((ticket, event))
            if event.outcome is not None:
                del lane.inside[event.id]
                if event.outcome in ANSWERED:
                    lane.failures = 0

    def _admit(self, lane: _Lane, ticket: Ticket) -> None:
        try:
            lane.loaded.engine.submit(ticket.request)
        except Exception as error:  # too little memory, say: it hurts this one only
            self._fail(ticket, told(error))
            return
        lane.inside[ticket.request.id] = ticket
        self._posts.append((ticket, max(self._clock() - ticket.arrived, 0.0)))

    def _broken(self, lane: _Lane, error: Exception) -> None:
        """A step failed: those inside end with an error, and the engine starts over, empty."""
        pair, why = lane.loaded.pair, told(error)
        log.error(
            "a step of pair %s failed, %d requests end: %s\n%s",
            pair,
            len(lane.inside),
            why,
            "".join(traceback.format_tb(error.__traceback__)),
        )
        lane.failures += 1
        for ticket in lane.inside.values():
            self._fail(ticket, why)
        lane.inside.clear()
        try:
            lane.loaded.restart()
        except Exception as fatal:
            lane.broken = True
            why = f"{told(fatal)} while the engine was made again"
            log.error("the engine of pair %s cannot be made again: %s", pair, why)
            for ticket in lane.waiting:
                self._fail(ticket, why)
            lane.waiting.clear()
        if lane.broken or lane.failures >= MOST_FAILURES:
            loaded, mended = lane.loaded, not lane.broken
            self._tell(lambda: self._failing(loaded, why, mended))

    def _let_go(self) -> None:
        for lane in [lane for lane in self._lanes if lane.retired and not lane.busy]:
            self._lanes.remove(lane)
            assert lane.retired is not None
            lane.retired()

    def _die(self, error: BaseException) -> None:
        """Something failed that no lane answers for: no engine can be trusted any more."""
        why = told(error)
        log.critical(
            "the engines' thread has failed: %s\n%s",
            why,
            "".join(traceback.format_tb(error.__traceback__)),
        )
        self._dead = True
        self._post()  # what was done before is told
        lanes, self._lanes = self._lanes, []
        for lane in lanes:
            if lane.retired is not None:
                lane.retired()
        self._tell(lambda: self._died(why))

    def _fail(self, ticket: Ticket, why: str) -> None:
        log.error("request %s ends with an error: %s", ticket.request.id, why)
        self._posts.append((ticket, Event(ticket.request.id, (), (), "error", Counts())))

    def _post(self) -> None:
        if self._posts:
            posts, self._posts = self._posts, []
            if not self._tell(lambda: self._deliver(posts)):
                self._stopping = True  # the loop is closed: the server has ended


def told(error: BaseException) -> str:
    """What may be said of an error: an exception's own words may hold what was being decoded."""
    field = getattr(error, "field", None)
    return f"{type(error).__name__} ({field})" if isinstance(field, str) else type(error).__name__
