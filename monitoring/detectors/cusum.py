"""A cumulative sum of falls: the detector that raises `drift`, calibrated to a stream's own spread.

Knows numbers and when each was seen; knows nothing of pairs, causes or files. Its fields are plain,
so `dataclasses.asdict` stores one and `Cusum(**stored)` brings it back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

ALLOWANCE = 0.05  # falls up to this much are no news; alpha-hat units
SLACK = 0.02  # how far a healthy stream may lie below its baseline: a daily wave, a change of K
RUN_LENGTH = 1e8  # whole requests between two false alarms, as far as the formula holds
NARROWEST, WIDEST = 0.08, 0.30  # spreads of a request's deviation that are believed


@dataclass(slots=True)
class Cusum:
    """One-sided cumulative sum of falls beyond an allowance (Page, Biometrika 41, 1954).

    On from `threshold` until the sum is back at zero, which is its hysteresis; the sum stops at
    twice the threshold, so that recovery is noticed. With allowance 0.05 and threshold 6 (alpha-hat
    times requests) a fall of 0.10 takes 6 / 0.05 = 120 requests, one of 0.20 takes 40.

    >>> cusum = Cusum()
    >>> any(cusum.update(0.0, at=float(t)) for t in range(1000))
    False
    >>> next(n for n in range(1, 1000) if cusum.update(0.10, at=1000.0 + n))
    121
    >>> cusum.since
    1001.0
    """

    allowance: float = ALLOWANCE
    threshold: float = 6.0
    at_least: int = 1  # requests in the excursion before it may be on
    level: float = 0.0
    since: float = 0.0  # when the present excursion from zero began; seconds since the epoch
    requests: int = 0  # in the present excursion
    on: bool = False

    def update(self, fall: float, *, at: float, weight: float = 1.0) -> bool:
        """One request: by how much it fell below what was expected, and when. True while on."""
        level = self.level + weight * (fall - self.allowance)
        if level <= 0:
            self.level, self.requests, self.on = 0.0, 0, False
            return False
        if self.requests == 0:
            self.since = at
        self.requests += 1
        self.level = min(level, 2 * self.threshold)
        self.on = self.on or (self.level > self.threshold and self.requests >= self.at_least)
        return self.on


def threshold_for(
    spread: float,
    *,
    slack: float = SLACK,
    allowance: float = ALLOWANCE,
    run_length: float = RUN_LENGTH,
) -> float:
    """The threshold at which a healthy stream alarms once in `run_length` whole requests.

    `spread` is the standard deviation of a request's deviation. Siegmund's corrected diffusion
    approximation of the average run length, (exp(2db) - 1 - 2db) / 2d^2 with the drift
    d = (allowance - slack) / spread and b = h / spread + 1.166 (Sequential Analysis, 1985, ch. 2),
    solved for h. Requests of text that go together more spread more, and are given more room.

    >>> [round(threshold_for(s, run_length=1e7), 2) for s in (0.1267, 0.1620, 0.2160)]
    [3.58, 5.69, 9.75]
    """
    spread = min(max(spread, NARROWEST), WIDEST)
    drift = (allowance - slack) / spread
    low, high = 0.0, 400.0 / drift
    for _ in range(100):
        bound = (low + high) / 2
        reach = 2 * drift * bound
        below = reach < 700 and (math.exp(reach) - 1 - reach) / (2 * drift**2) < run_length
        low, high = (bound, high) if below else (low, bound)
    return max(0.0, spread * (low - 1.166))
