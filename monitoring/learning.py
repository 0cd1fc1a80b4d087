"""A baseline from the first healthy requests: those that belong to no fall.

Knows requests and whether a fall is under way; knows nothing of detectors. Requests since a fall
may have begun wait until it is over, or are thrown away with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from monitoring.baselines import LEARN_AT, Baseline
from monitoring.windows import Served


@dataclass(slots=True)
class Learning:
    """The verb is `add`."""

    on: bool = True  # until the baseline is known well or handed in, or an alarm ends it
    anew: bool = False  # after another engine: what the old baseline calls a fall is learnt
    first: list[Served] = field(default_factory=list)  # healthy requests
    doubted: list[Served] = field(default_factory=list)  # healthy only once the fall is over

    def add(self, served: Served, *, falling: bool, fallen: bool, engine: str) -> Baseline | None:
        """One request that judged something. A baseline where it is time for one."""
        if not self.on:
            return None
        self.doubted.append(served)
        if fallen and not self.anew:
            self.end()
            return None
        if falling and not self.anew:
            return None
        before, now = len(self.first), len(self.first) + len(self.doubted)
        self.first, self.doubted = self.first + self.doubted, []
        learnt = None
        if any(before < n <= now for n in LEARN_AT):
            self.anew = False
            counts = [one.counts for one in self.first]
            learnt = Baseline.of(counts, [one.cell for one in self.first], engine=engine)
        if now >= LEARN_AT[-1]:
            self.end()
        return learnt

    def doubt(self, *, all_of_it: bool) -> None:
        """The draft is dead: what waited was no healthy request, nor was any without a baseline."""
        self.doubted = []
        if all_of_it:
            self.first = []

    def begin_anew(self) -> None:
        self.on, self.anew, self.first, self.doubted = True, True, [], []

    def end(self) -> None:
        self.on, self.anew, self.first, self.doubted = False, False, [], []

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Learning:
        return cls(
            stored["on"],
            stored["anew"],
            [Served.from_json(one) for one in stored["first"]],
            [Served.from_json(one) for one in stored["doubted"]],
        )
