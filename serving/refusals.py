"""Which pairs are left alone for now, how long, and whether that has been told.

Values and a clock that is handed in; knows nothing of registries, files and engines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class Again(Enum):
    """When the same pair is worth another try; the value is the longest wait, in seconds."""

    SOON = 300.0  # the fault may be anybody's
    LATER = 3600.0  # it is the pair's, or of what stands between; its files may be large
    ASKED = None  # trying again would end the same


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
        self._until: dict[Named, float | None] = {}  # None: only when asked
        self._tries: dict[Named, int] = {}

    def may_try(self, named: Named) -> bool:
        until = self._until.get(named, 0.0)
        return named not in self._until or (until is not None and self._clock() >= until)

    def known(self, named: Named) -> bool:
        """Whether it was refused before."""
        return named in self._until

    def refuse(self, named: Named, again: Again, *, longest: bool = False) -> bool:
        """Leave it alone for a while, at once for the longest. Whether that is news."""
        news = named not in self._until
        tries = self._tries[named] = self._tries.get(named, 0) + 1
        wait: float | None = again.value
        if wait is not None and not longest:
            wait = min(self._first_seconds * 2**tries, wait)
        self._until[named] = None if wait is None else self._clock() + wait
        return news

    def forget(self) -> None:
        """Somebody asks, or another pair is served: all may be tried, and told, anew."""
        self._until.clear()
        self._tries.clear()

    def describe(self) -> list[dict[str, str]]:
        """For the admin side."""
        return [{"pair": one.pair, "version": one.version} for one in self._until]
