"""Detectors: state machines with one verb, `update`, fed with requests and never with tokens.

They know numbers and when each was seen; they know nothing of pairs, causes or files. Their fields
are plain, so `dataclasses.asdict` stores one and `Cusum(**stored)` brings it back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

CORRELATION = 0.10  # of acceptances within a request; G9's figure, judged tokens count accordingly
FULL_WEIGHT_JUDGED = 16  # a request that judged so many counts as one whole request
DEAD = 0.02  # what a draft that guesses at random may still get accepted


def information(judged: int) -> float:
    """How many independent tokens `judged` correlated ones are worth (Kish 1965, design effect).

    >>> [round(information(n), 1) for n in (0, 1, 32, 1000)]
    [0.0, 1.0, 7.8, 9.9]
    """
    return judged / (1 + (judged - 1) * CORRELATION) if judged else 0.0


def weight(judged: int) -> float:
    """A request's weight in (0, 1]: one whole from FULL_WEIGHT_JUDGED judged tokens on.

    By information, so that a stream of very short requests alarms no sooner by chance than one of
    long requests; it takes more of them to say the same.
    """
    return min(1.0, information(judged) / information(FULL_WEIGHT_JUDGED))


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

    allowance: float = 0.05  # falls up to this much are no news; alpha-hat units
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


@dataclass(slots=True)
class Collapse:
    """Is the draft dead? A CUSUM of log-likelihood ratios, dead against at least `alive`.

    Bernoulli CUSUM (Reynolds and Stoumbos, J. Quality Technology 31, 1999) on the independent
    tokens that a request is worth. With `alive` at half the baseline a draft of 0.7 counts as dying
    below 0.13. Requests without a judged token (K = 0) say nothing and change nothing.

    >>> collapse = Collapse(alive=0.35)
    >>> next(n for n in range(1, 100) if collapse.update(judged=32, accepted=0, at=float(n)))
    5
    """

    alive: float = 0.15  # the least acceptance of a draft that lives; half its baseline where known
    excursion: Cusum = field(
        default_factory=lambda: Cusum(allowance=0.0, threshold=8.0, at_least=5)
    )

    def update(self, *, judged: int, accepted: int, at: float) -> bool:
        """One request. True while the draft looks dead."""
        if not judged:
            return self.excursion.on
        dead = min(DEAD, self.alive / 4)
        share = accepted / judged
        ratio = share * math.log(dead / self.alive) + (1 - share) * math.log(
            (1 - dead) / (1 - self.alive)
        )
        return self.excursion.update(information(judged) * ratio, at=at)
