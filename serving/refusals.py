"""Which pairs are left alone for now, how long, and whether that has been told.

Values and a clock that is handed in; knows nothing of registries, files and engines.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

DOUBLINGS = 60  # beyond any wait; a number that grows with the tries would some day be none


class Again(Enum):
    """When the same pair is worth another try; the value is the longest wait, in seconds."""

    SOON = 300.0  # the fault may be anybody's
    LATER = 3600.0  # it is the pair's, or of what stands between; its files may be large
    ASKED = None  # trying again would end the same; now and then all the same if nothing is served


@dataclass(frozen=True, slots=True)
class Named:
    """A pair as one place has it: another version, or the copy on the disk, is another try."""

    pair: str
    version: str
    place: str


class Refusals:
    """Waits double with each try of a pair. Nothing here outlives the process."""

    def __init__(self, first_seconds: float, clock: Callable[[], float]) -> None:
        self._first_seconds, self._clock = first_seconds, clock
        self._until: dict[Named, tuple[float, bool]] = {}  # the clock's; whether only when asked
        self._tries: dict[Named, int] = {}

    def may_try(self, named: Named, *, idle: bool) -> bool:
        """`idle`: nothing is served, so that what only asking would repeat has nothing to lose."""
        until, asked = self._until.get(named, (-math.inf, False))
        return self._clock() >= until and (idle or not asked)

    def known(self, named: Named) -> bool:
        """Whether it was refused before."""
        return named in self._until

    def refuse(self, named: Named, again: Again, *, longest: bool = False) -> bool:
        """Leave it alone for a while, at once for the longest. Whether that is news."""
        news = named not in self._until
        tries = self._tries[named] = self._tries.get(named, 0) + 1
        most: float = Again.SOON.value if again.value is None else again.value
        wait = most if longest else min(self._first_seconds * 2.0 ** min(tries, DOUBLINGS), most)
        self._until[named] = self._clock() + wait, again is Again.ASKED
        return news

    def forget(self) -> None:
        """Somebody asks, or another pair is served: all may be tried, and told, anew."""
        self._until.clear()
        self._tries.clear()

    def describe(self) -> list[dict[str, str]]:
        """For the admin side."""
        return [{"pair": one.pair, "version": one.version} for one in self._until]
