"""A pair without a model: its engine emits one token a step, and fails in whatever way it is told.

For tests of what stands around engines. Real engines have theirs in tests/speculation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from serving.arms import Arm
from serving.loading import Loaded
from serving.tickets import Ticket
from serving.worker import Worker
from speculation.breaker import DrafterFault
from speculation.records import Counts
from speculation.requests import Limits
from speculation.sequence import Event, Request

TOKEN = 7  # what every answer is made of
DRAFTED = 4  # tokens that each answer is said to have been drafted


class FakeEngine:
    """Of `slots` rows. `fails` is asked before each step and may raise, or wait."""

    def __init__(self, slots: int, fails: Callable[[], None]) -> None:
        self.slots, self.waiting, self.fails = slots, 0, fails
        self.rows: dict[str, tuple[Request, int]] = {}
        self.breakers: Mapping[str, Any] = {}
        self.paces: Mapping[str, Any] = {}
        self.gone: set[str] = set()

    @property
    def running(self) -> int:
        return len(self.rows)

    def submit(self, request: Request) -> None:
        self.rows[request.id] = request, 0

    def cancel(self, name: str) -> None:
        self.gone.add(name)

    def step(self) -> list[Event]:
        self.fails()
        events = []
        for name, (request, done) in list(self.rows.items()):
            ended = "length" if done + 1 == request.max_tokens else None
            ended = "cancelled" if name in self.gone else ended
            counts = Counts(plain_forwards=done + 1, drafted=DRAFTED, emitted=done + 1)
            tokens = () if ended == "cancelled" else (TOKEN,)
            events.append(Event(name, tokens, (), ended, counts if ended else None))
            if ended:
                del self.rows[name]
            else:
                self.rows[name] = request, done + 1
        return events


@dataclass(eq=False)
class FakePair:
    """What the server's parts take for a `Loaded`."""

    pair: str = "pair"
    slots: int = 2
    max_len: int = 100
    draft_len: int = 4
    adaptive: bool = False
    kind: str = "head"
    text: Any = None
    adapters: Mapping[str, str] = field(default_factory=dict)
    fails: Callable[[], None] = lambda: None
    restarts: Callable[[], None] = lambda: None  # asked before the engine is made again
    failed: Sequence[DrafterFault] = ()
    running: FakeEngine | None = None

    def __post_init__(self) -> None:
        self.own = self.default = Arm(self.kind, self.kind, self.pair, self.kind, verified=True)
        self.arms = {self.kind: self.own}
        self.host = SimpleNamespace(release=SimpleNamespace(digest="d"))
        self.limits = Limits(self.max_len, 300, tuple(self.arms), tuple(self.adapters))

    @property
    def engine(self) -> FakeEngine:
        assert self.running is not None
        return self.running

    def start(self, on_fault: object = None) -> None:
        self.running = FakeEngine(self.slots, lambda: self.fails())

    def restart(self) -> None:
        self.running = None
        self.restarts()
        self.start()

    def length(self, asked: int | None, *, seeded: bool, adaptive: bool = False) -> int | None:
        return asked if asked is not None else None if self.adaptive and not seeded else 4

    def faults(self) -> Mapping[str, Sequence[DrafterFault]]:
        return {self.kind: self.failed}

    @property
    def loaded(self) -> Loaded:
        return cast(Loaded, self)


def run(job: Callable[[Worker], Awaitable[None]], **given: Any) -> list[tuple[str, str]]:
    """Run `job` over a worker; who ended, and how."""
    ended: list[tuple[str, str]] = []

    async def over() -> None:
        noted = {"ended": lambda ticket, last: ended.append((ticket.request.id, last.outcome))}
        worker = Worker(**{"queue_tokens": 10_000, **noted, **given})
        try:
            async with asyncio.timeout(20):
                await job(worker)
        finally:
            worker.stop()

    asyncio.run(over())
    return ended


def submit(worker: Worker, pair: FakePair, *names: str, tokens: int = 3) -> list[Ticket]:
    requests = [Request(name, (9,), tokens, drafter=pair.kind) for name in names]
    return [worker.submit([request], pair.loaded).tickets[0] for request in requests]


async def until(holds: Callable[[], bool]) -> None:
    """Wait until `holds()`; the test's own time-out ends it."""
    while not holds():
        await asyncio.sleep(0.002)
