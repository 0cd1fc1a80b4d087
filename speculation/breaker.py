"""When a drafter is left alone: faults counted, a cool-down that doubles, one request to try again.

A circuit breaker without effects: it is told what happened and asked what may happen, and reads the
time from a clock that is handed in. Knows nothing of models or tokens.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

FaultKind = Literal["exception", "nan", "law", "width", "slow", "memory"]
# One of these is enough: `slow` is already a verdict over many rounds, and memory does not come
# back by asking again at once.
AT_ONCE = frozenset({"slow", "memory"})
RECENT = 32  # faults that are kept to be shown


@dataclass(frozen=True, slots=True)
class DrafterFault:
    """What a drafter did wrong. Nothing of any prompt or output is in it."""

    kind: FaultKind
    message: str
    at: float  # by the breaker's clock, seconds


class State(StrEnum):
    CLOSED = "closed"  # all may draft
    OPEN = "open"  # none may
    HALF_OPEN = "half_open"  # one request may, to see


class Breaker:
    """Opens after `faults` faults within `window` proposals; then waits, and lets one request try.

    The wait begins at `cool_down_seconds`, doubles each time that the trial fails, up to
    `longest_seconds`, and is back at its beginning once a whole window went well. Trials have to go
    well `proving` times in all, of one request or of several short ones. Proposals are counted, not
    seconds: a busy server's faults are no closer together than an idle one's.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        faults: int = 3,
        window: int = 50,  # proposals
        proving: int = 10,  # proposals; more than Slowness needs to tell
        cool_down_seconds: float = 10.0,
        longest_seconds: float = 600.0,
    ) -> None:
        assert 0 < faults <= window
        assert proving > 0
        assert 0 < cool_down_seconds <= longest_seconds
        self._clock, self._limit, self._window, self._proving = clock, faults, window, proving
        self._first_seconds, self._longest_seconds = cool_down_seconds, longest_seconds
        self.cool_down_seconds = cool_down_seconds  # the next one
        self.recent: deque[DrafterFault] = deque(maxlen=RECENT)
        self.counts: Counter[FaultKind] = Counter()  # ever
        self.opened = 0  # times; each is one alarm
        self._proposals = 0  # ever
        self._faulty: deque[int] = deque()  # which proposals of the window
        self._open_until: float | None = None  # None: closed
        self._trial: Hashable | None = None  # whose request tries
        self._trial_until = 0.0
        self._proved = 0
        self._healthy_at = 0  # the proposal at which a whole window has gone well

    @property
    def state(self) -> State:
        if self._open_until is None:
            return State.CLOSED
        return State.OPEN if self._clock() < self._open_until else State.HALF_OPEN

    @property
    def relapsed(self) -> bool:
        """Whether it last opened before a whole window had gone well: it is the same trouble."""
        return self.cool_down_seconds > 2 * self._first_seconds

    def allow(self, request: Hashable) -> bool:
        """Whether `request` may draft now. In the half-open state the first that asks tries.

        A trial that is not heard of for a cool-down is over, and the next request may try.
        """
        state = self.state
        if state is not State.HALF_OPEN:
            return state is State.CLOSED
        now = self._clock()
        if self._trial is None or now >= self._trial_until:
            self._trial = request
        if self._trial != request:
            return False
        self._trial_until = now + self.cool_down_seconds
        return True

    def release(self, request: Hashable) -> None:
        """`request` has ended; was it the trial, another may try."""
        if self._trial == request:
            self._trial = None

    def rename(self, source: Hashable, request: Hashable) -> None:
        """The request `source` is called `request` from now on."""
        if self._trial == source:
            self._trial = request

    def success(self) -> None:
        """A proposal was in order."""
        self._count()
        state = self.state
        if state is State.HALF_OPEN:
            self._proved += 1
            if self._proved >= self._proving:
                self._open_until, self._trial = None, None
                self._faulty.clear()
                self._healthy_at = self._proposals + self._window
        elif state is State.CLOSED and not self._faulty and self._proposals >= self._healthy_at:
            self.cool_down_seconds = self._first_seconds

    def record(self, kind: FaultKind, message: str) -> DrafterFault:
        """A proposal was not. Returns the fault as it is kept."""
        fault = DrafterFault(kind, message, self._clock())
        self.recent.append(fault)
        self.counts[kind] += 1
        self._count()
        self._faulty.append(self._proposals)
        if self._open_until is None:
            if kind in AT_ONCE or len(self._faulty) >= self._limit:
                self._open()
        elif self.state is State.HALF_OPEN:
            self._open()
        return fault

    def _count(self) -> None:
        self._proposals += 1
        while self._faulty and self._faulty[0] <= self._proposals - self._window:
            self._faulty.popleft()

    def _open(self) -> None:
        self.opened += 1
        self._open_until = self._clock() + self.cool_down_seconds
        self.cool_down_seconds = min(2 * self.cool_down_seconds, self._longest_seconds)
        self._trial, self._proved = None, 0


class Slowness:
    """Tells a drafter that takes more than `factor` target steps, `rounds` times in a row.

    In a row, because a round in which a prompt is read takes longer once.
    """

    def __init__(self, *, factor: float = 10.0, rounds: int = 8) -> None:
        self.factor, self.rounds = factor, rounds
        self._slow = 0

    def too_slow(self, propose_seconds: float, step_seconds: float) -> bool:
        self._slow = self._slow + 1 if propose_seconds > self.factor * step_seconds else 0
        if self._slow < self.rounds:
            return False
        self._slow = 0
        return True
