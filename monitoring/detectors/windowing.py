"""ADWIN: a window that drops its past when the past no longer fits. A slow detector, by river.

The door to river, which is imported where it is used: a monitor without it runs without this one.
Knows one number a request; knows nothing of what it means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

FALL = 0.03  # a change by less is none that anybody has to hear of; alpha-hat units
MOST_KEPT, REPLAYED = 1000, 500  # values; when there are more, the last ones begin anew
RECOVERED = 100  # requests whose mean is back end an alarm that no cut has ended

_PLAIN = ("delta", "on", "since", "requests", "level", "before")


class Adwin:
    """Adaptive windowing (Bifet and Gavalda, SIAM SDM 2007) over requests' deviations.

    On from a cut behind which the mean is lower, until one behind which it is back. River keeps its
    window in compiled fields that cannot be stored: the values are kept instead and replayed, so
    that a restarted detector says exactly what an unbroken one does. Without river it is never on.

    >>> adwin = Adwin()
    >>> any(adwin.update(0.0, at=float(t)) for t in range(500))
    False
    >>> next(t for t in range(500, 1000) if adwin.update(-0.3, at=float(t)))
    543
    """

    __slots__ = (*_PLAIN, "values", "times", "_window", "_fresh")

    def __init__(
        self,
        delta: float = 1e-4,  # bounds the chance of a false cut at a look
        *,
        values: Sequence[float] = (),
        times: Sequence[float] = (),
        on: bool = False,
        since: float = 0.0,
        requests: int = 0,  # behind the cut
        level: float = 0.0,  # by how much the mean fell
        before: float = 0.0,  # from where
    ) -> None:
        self.delta, self.values, self.times = delta, list(values), list(times)
        self.on, self.since, self.requests, self.level = on, since, requests, level
        self.before = before
        self._window: Any = None
        self._fresh = 0  # values that river's window has seen since it was last cut

    def update(self, value: float, *, at: float) -> bool:
        """One request's deviation, negative for accepted less. True while it has fallen."""
        if self._window is None:
            self._anew()
        value = round(min(max(value, -1.0), 1.0), 4)
        self.values.append(value)
        self.times.append(round(at, 3))
        if self._window is None:  # no river
            del self.values[:-1], self.times[:-1]
            return False
        if self._see(value):
            self._change()
        if self.on:
            self.requests += 1
            last = self.values[-RECOVERED:]
            if self.requests % 32 == 0 and self.requests > RECOVERED:
                self.on = sum(last) / len(last) < self.before - FALL
        if len(self.values) > MOST_KEPT:
            del self.values[:-REPLAYED], self.times[:-REPLAYED]
            self._anew()
        return self.on

    def to_json(self) -> dict[str, Any]:
        stored = {name: getattr(self, name) for name in _PLAIN}
        return {**stored, "values": list(self.values), "times": list(self.times)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Adwin:
        return cls(**stored)

    def _anew(self) -> None:
        """A window that has seen what is kept; what it thinks of that was said when it came."""
        river = _river()
        if river is None:
            return
        self._window, self._fresh = river.ADWIN(delta=self.delta), 0
        for value in self.values:
            if self._see(value):
                self._fresh = 0

    def _see(self, value: float) -> bool:
        """Whether it dropped some of its past."""
        self._window.update(value)
        self._fresh += 1
        return bool(self._window.drift_detected)

    def _change(self) -> None:
        """The window was cut: was that a fall, or the end of one?"""
        seen, self._fresh = self.values[-self._fresh :], 0  # river's window begins anew after a cut
        place = _likeliest(seen)
        was, now = sum(seen[:place]) / place, sum(seen[place:]) / (len(seen) - place)
        if self.on:
            self.on = now < self.before - FALL
        elif was - now > FALL:
            self.on, self.before, self.level = True, was, was - now
            self.requests = len(seen) - place
            self.since = self.times[-self.requests]


def _likeliest(values: Sequence[float]) -> int:
    """Where two means explain the values best; river says only that it is somewhere in there."""
    total, before = sum(values), 0.0
    best, place = -1.0, 1
    for n, value in enumerate(values[:-1], start=1):
        before += value
        left = len(values) - n
        apart = (before / n - (total - before) / left) ** 2 * n * left
        if apart > best:
            best, place = apart, n
    return place


def _river() -> ModuleType | None:
    try:
        from river import drift
    except ImportError:
        return None
    return drift
