"""How long a measurement will still take, by what is left of each kind of run.

A request of the speed runs takes several times one of the acceptance runs, which have company, so
the pace of what was done so far says little of what is left: each kind has its own. A kind that has
not begun is guessed from the nearest that has: first from other arms, then from other loads, as if
batching gained the square root of what it could. Knows counts and a clock; nothing of requests.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable

Kind = tuple[str, str, int]  # run, arm, requests at once


class Remaining:
    """Time left of one measurement. Tell `finished` of every request that ended."""

    def __init__(self, left: Iterable[Kind], clock: Callable[[], float]) -> None:
        self._left, self._clock = Counter(left), clock
        self._took: dict[Kind, float] = {}
        self._done: Counter[Kind] = Counter()
        self._began = self._last = clock()

    def finished(self, kind: Kind) -> None:
        """One request of `kind` ended; the time since the last one that did was its own."""
        now = self._clock()
        self._took[kind] = self._took.get(kind, 0.0) + now - self._last
        self._last = now
        self._done[kind] += 1
        self._left[kind] -= 1

    @property
    def elapsed(self) -> float:
        """Seconds since the first question."""
        return self._clock() - self._began

    @property
    def seconds(self) -> float | None:
        """Seconds left, or None before anything is known."""
        if not self._done:
            return None
        return sum(count * self._pace(kind) for kind, count in self._left.items() if count > 0)

    def _pace(self, kind: Kind) -> float:
        """Seconds of the clock for one request of a kind."""
        if kind in self._done:
            return self._took[kind] / self._done[kind]
        run, _, at_once = kind
        for alike in (
            [other for other in self._done if (other[0], other[2]) == (run, at_once)],
            [other for other in self._done if other[2] == at_once],
            list(self._done),
        ):
            if alike:
                paces = [self._took[o] / self._done[o] * math.sqrt(o[2] / at_once) for o in alike]
                return sum(paces) / len(paces)
        return 0.0
