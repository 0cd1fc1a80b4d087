"""How fast the budget of requests below the floor is spent. What raises `slow_service`.

Knows a share that may be bad, and clocks; knows nothing of why a request was bad.
"""

from __future__ import annotations

from dataclasses import dataclass, field

BUCKET_SECONDS = 300.0
BUCKETS = 864  # three days
WINDOWS = (  # long, short (buckets), and the rate above which both have to be
    (12, 1, 14.4),  # an hour: two per cent of a month's budget
    (72, 6, 6.0),  # six hours: five per cent
    (864, 72, 1.0),  # three days: ten per cent
)
LEAST_BELOW = 10  # requests in the long window: a few are chance whatever their share


@dataclass(slots=True)
class BurnRate:
    """Multi-window, multi-burn-rate alerting (The Site Reliability Workbook, ch. 5,
    https://sre.google/workbook/alerting-on-slos/). The rate is the share of requests below the
    floor over the budget; the short window ends the alarm soon after the cause has ended.

    >>> burn = BurnRate(budget=0.02)
    >>> any(burn.update(n % 100 == 0, at=float(n)) for n in range(7200))  # one per cent
    False
    >>> next(n for n in range(7200, 9000) if burn.update(True, at=float(n))) < 8400
    True
    """

    budget: float = 0.02  # share of requests that may lie below the floor
    first: int = 0  # number of the oldest bucket, in buckets since the epoch
    all: list[int] = field(default_factory=list)  # requests, a bucket of time each
    below: list[int] = field(default_factory=list)
    on: bool = False
    since: float = 0.0
    requests: int = 0  # below the floor, in the window that is the matter
    level: float = 0.0  # its rate

    def update(self, below_floor: bool, *, at: float) -> bool:
        """One request. True while both windows of a pair burn too fast."""
        number = int(at // BUCKET_SECONDS)
        if not self.all:
            self.first = number
        number = max(number, self.first + len(self.all) - 1)  # a clock that goes back stands still
        missing = number - self.first - len(self.all) + 1
        if missing >= BUCKETS:
            self.first, self.all, self.below, missing = number, [], [], 1
        self.all += [0] * missing
        self.below += [0] * missing
        if (old := len(self.all) - BUCKETS) > 0:
            del self.all[:old], self.below[:old]
            self.first += old
        self.all[-1] += 1
        self.below[-1] += below_floor
        if below_floor or self.on:  # a good request turns nothing on
            self._look(at)
        return self.on

    def _look(self, at: float) -> None:
        was, self.on = self.on, False
        for long, short, most in WINDOWS:
            below = sum(self.below[-long:])
            rates = [self._rate(long), self._rate(short)]
            if below >= LEAST_BELOW and min(rates) > most:
                if not was:
                    begun = self.first + max(0, len(self.all) - long)
                    self.since = min(at, begun * BUCKET_SECONDS)
                self.on, self.requests, self.level = True, below, rates[0]
                return

    def _rate(self, buckets: int) -> float:
        return sum(self.below[-buckets:]) / sum(self.all[-buckets:]) / self.budget
