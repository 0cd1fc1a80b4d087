"""How fast the queue is worked off, and when there will be room. Knows tokens and a clock.

Counted as they are done, not when a request ends: an answer that takes minutes drains all the time.
What a request had asked for and did not need is done when it ends.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable

WINDOW_SECONDS = 30.0
LEAST_SECONDS = 1.0  # of work, before it says anything


class DrainRate:
    """Tokens a second over the last half minute of work; while nothing is to do, no time passes."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seconds: deque[tuple[int, int]] = deque()  # whole seconds of the clock, tokens
        self._since: float | None = None  # when there was something to do again
        self._known: float | None = None  # of earlier work

    def begin(self) -> None:
        """There is something to do; telling it again changes nothing."""
        if self._since is None:
            self._since = self._clock()

    def done(self, tokens: int) -> None:
        """So many tokens have been worked off."""
        now = self._clock()
        second = int(now)
        if self._seconds and self._seconds[-1][0] == second:
            self._seconds[-1] = second, self._seconds[-1][1] + tokens
        else:
            self._seconds.append((second, tokens))
            while self._seconds[0][0] < now - WINDOW_SECONDS:
                self._seconds.popleft()

    def idle(self) -> None:
        """Nothing is left to do."""
        self._known = self.per_second()
        self._seconds.clear()
        self._since = None

    def per_second(self) -> float | None:
        """None where too little has been done to tell."""
        if self._since is None:
            return self._known
        now = self._clock()
        span = min(now - self._since, WINDOW_SECONDS)
        tokens = sum(count for second, count in self._seconds if second >= now - WINDOW_SECONDS)
        return tokens / span if span >= LEAST_SECONDS and tokens else self._known


def seconds_until(
    freed: int,
    *,
    running: Iterable[int],  # tokens that each of those in a slot has left
    waiting: Iterable[int],  # tokens of each that waits, the first one first
    rate: float,  # tokens a second of all slots together
) -> float:
    """Until so many tokens wait no longer: one leaves the line when a slot is free for it."""
    slots = list(running)
    heapq.heapify(slots)
    count, now = len(slots), 0
    if slots:
        for tokens in waiting:
            if freed <= 0:
                break
            now = slots[0]
            heapq.heapreplace(slots, now + tokens)
            freed -= tokens
    return now * count / rate + max(freed, 0) / rate
