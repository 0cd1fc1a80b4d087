"""A client's request on its way: one ticket for each answer that it asked for, and their group.

What the routes hold while the engine works. Knows events and deadlines; knows nothing of engines,
text or HTTP. Everything here belongs to the event loop's thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from serving.arms import Arm
from serving.loading import Loaded
from serving.text import Text
from speculation.sequence import Event, Request

Why = Literal["gone", "deadline", "ended"]  # its client left, its time is over, the server ends


class QueueFullError(Exception):
    """More tokens wait than the server lets; come back in `retry_seconds`."""

    def __init__(self, retry_seconds: int) -> None:
        super().__init__(f"the queue is full: come back in {retry_seconds} s")
        self.retry_seconds = retry_seconds


class DeadlineError(Exception):
    """A group's time is over; its tickets have been given up."""


@dataclass(eq=False)
class Ticket:
    """One answer on its way: the event loop's handle on it."""

    request: Request
    loaded: Loaded | None  # the pair it began with, and ends with; None once it has ended
    started: float  # seconds since the epoch
    arrived: float  # the clock's seconds
    events: asyncio.Queue[tuple[int, Event]] = field(default_factory=asyncio.Queue)  # its group's
    place: int = 0  # in its group
    answers: int = 1  # in its group, this one among them
    counted: bool = True  # a probe's is not
    waiting_seconds: float = 0.0  # before the engine had it
    first_token_seconds: float | None = None  # from arrival
    begun: bool = False
    ended: bool = False
    left: Why | None = None  # why it was given up, if it was
    emitted: list[int] = field(default_factory=list)  # token ids so far
    pace: str | None = None  # its drafter's state when it ended, where K adapts
    # What is said of it later, without the pair: fixed now, for an operator may steer.
    pair: str = field(init=False)
    release: str = field(init=False)  # digest
    arm: Arm = field(init=False)
    text: Text = field(init=False)
    draft_len: int = field(init=False)  # the K asked for, or configured; its pace finds its own

    def __post_init__(self) -> None:
        loaded, asked = self.loaded, self.request.draft_len
        assert loaded is not None
        name = self.request.drafter
        self.arm = loaded.default if name is None else loaded.arms[name]
        self.pair, self.release, self.text = loaded.pair, loaded.host.release.digest, loaded.text
        # Of an arm without a draft 0, whatever was asked for.
        known = loaded.draft_len if asked is None else asked
        self.draft_len = 0 if self.arm.kind == "none" else known

    @property
    def adaptive(self) -> bool:
        """Whether its rounds draft what pays: it has no K of its own."""
        return self.request.draft_len is None and self.draft_len > 0

    @property
    def tokens(self) -> int:
        """What it may cost: the queue is bounded by these."""
        return len(self.request.prompt_ids) + self.request.max_tokens

    @property
    def tokens_left(self) -> int:
        """What of it has still to be done, at most."""
        read = 0 if self.first_token_seconds is None else len(self.request.prompt_ids)
        return self.tokens - read - len(self.emitted)

    def end(self) -> None:
        """It has its last event. Its client may take minutes to read that, and the memory of its
        pair may be wanted for the next."""
        engine = None if self.loaded is None else self.loaded.running
        if engine is not None and self.adaptive and self.arm.name in engine.paces:
            self.pace = str(engine.paces[self.arm.name].state)
        self.ended, self.loaded = True, None

    def outcome(self, last: Event) -> str:
        """The one word for how it ended; `last` is what the engine says.

        Whoever was told that time is over has not been answered, even if the engine was done just
        then.
        """
        assert last.outcome is not None
        return "deadline" if self.left == "deadline" else last.outcome


@dataclass(eq=False)
class Group:
    """All answers to one client's request. They share one queue of events and one deadline."""

    tickets: tuple[Ticket, ...]  # prompt by prompt, choice by choice: the API's `index`
    until: float  # the clock's seconds: arrival and the deadline
    cancel: Callable[[Ticket], None]
    clock: Callable[[], float] = time.monotonic

    @property
    def ended(self) -> bool:
        return all(ticket.ended for ticket in self.tickets)

    async def next(self) -> tuple[int, Event]:
        """The next event, with the index of its ticket. Raises DeadlineError.

        Not to be asked once every ticket's last event was taken.
        """
        if (left := self.until - self.clock()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    return await self.tickets[0].events.get()
        self.give_up("deadline")
        raise DeadlineError("the request took too long")

    def give_up(self, why: Why) -> None:
        """End what has not ended; its slots are free within a round. Once is enough."""
        for ticket in self.tickets:
            if not ticket.ended and ticket.left is None:
                ticket.left = why
                self.cancel(ticket)
