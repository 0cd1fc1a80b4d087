"""A confidence sequence: an interval that holds at every moment at once. The confirming layer.

Slower than the CUSUM and surer: it assumes nothing of how requests are spread but that each lies
within bounds. Knows numbers in [0, 1] and times; knows nothing of pairs or files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ALPHA = 1e-4  # chance that one sequence ever leaves the truth out
BEGIN_EVERY = 250  # requests: a sequence that began before the fall takes long to notice it
AT_ONCE = 8  # sequences; the oldest ends
MARGIN = 0.02  # a fall by less is within what is tolerated
LARGEST_BET = 0.75


@dataclass(slots=True)
class ConfidenceSequence:
    """Empirical-Bernstein with predictable plug-in (Waudby-Smith and Ramdas, J. R. Statist. Soc. B
    86, 2024, theorem 2) of the mean of numbers in [0, 1].

    >>> sequence = ConfidenceSequence(alpha=0.05)
    >>> for _ in range(1000):
    ...     sequence.update(0.5)
    >>> [round(bound, 4) for bound in sequence.bounds]
    [0.4951, 0.5049]
    """

    alpha: float = ALPHA
    seen: int = 0
    total: float = 0.0
    squares: float = 0.0  # of deviations from the running mean
    bets: float = 0.0
    weighted: float = 0.0
    spent: float = 0.0
    began: float = 0.0  # seconds since the epoch, of its first number

    def update(self, value: float) -> None:
        """One number in [0, 1]. The bet on it is made before it is seen."""
        now = self.seen + 1
        mean = (0.5 + self.total) / now
        variance = (0.25 + self.squares) / now
        bet = min(
            math.sqrt(2 * math.log(2 / self.alpha) / (variance * now * math.log(now + 1))),
            LARGEST_BET,
        )
        self.spent += 4 * (value - mean) ** 2 * (-math.log1p(-bet) - bet) / 4
        self.bets += bet
        self.weighted += bet * value
        self.seen, self.total = now, self.total + value
        self.squares += (value - (0.5 + self.total) / (now + 1)) ** 2

    @property
    def bounds(self) -> tuple[float, float]:
        if not self.seen:
            return 0.0, 1.0
        centre = self.weighted / self.bets
        half = (math.log(2 / self.alpha) + self.spent) / self.bets
        return max(0.0, centre - half), min(1.0, centre + half)


@dataclass(slots=True)
class Confirm:
    """Has the mean deviation fallen for sure? Overlapping sequences, one begun every so often
    (Shekhar and Ramdas, arXiv 2309.09111); on while one lies wholly below the margin.

    >>> confirm = Confirm()
    >>> any(confirm.update(0.0, at=float(t)) for t in range(600))
    False
    >>> next(t for t in range(600, 2000) if confirm.update(-0.2, at=float(t))) < 1000
    True
    """

    margin: float = MARGIN
    alpha: float = ALPHA
    begin_every: int = BEGIN_EVERY
    at_once: int = AT_ONCE
    seen: int = 0
    running: list[ConfidenceSequence] = field(default_factory=list)
    on: bool = False
    since: float = 0.0  # the beginning of the shortest sequence that says so
    requests: int = 0  # in it
    level: float = 0.0  # by how much its upper bound lies below nothing

    def update(self, deviation: float, *, at: float) -> bool:
        """One request's deviation in [-1, 1], negative for accepted less. True while it is sure."""
        if self.seen % self.begin_every == 0:
            self.running.append(ConfidenceSequence(self.alpha, began=at))
            del self.running[: -self.at_once]
        self.seen += 1
        value = (min(max(deviation, -1.0), 1.0) + 1) / 2
        sure = None
        for one in self.running:
            one.update(value)
            high = 2 * one.bounds[1] - 1
            if high < -self.margin:
                sure, self.level = one, -high
        self.on = sure is not None
        if sure is not None:
            self.since, self.requests = sure.began, sure.seen
        return self.on

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Confirm:
        running = [ConfidenceSequence(**one) for one in stored["running"]]
        return cls(**{**stored, "running": running})
