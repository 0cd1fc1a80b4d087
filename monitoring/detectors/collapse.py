"""Is the draft dead? What raises `dead_draft`, from at least five requests.

Knows judged and accepted tokens of requests and whether drafting was turned off for being rejected;
knows nothing of pairs or files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from monitoring.detectors.cusum import Cusum
from monitoring.detectors.weights import information

DEAD = 0.02  # what a draft that guesses at random may still get accepted
OFF_EVIDENCE = 0.5  # of the threshold, where drafting was turned off for being rejected
OFF_REQUESTS = 5  # in a row that were not drafted for, because the target rejected too much


@dataclass(slots=True)
class Collapse:
    """A CUSUM of log-likelihood ratios, dead against at least `alive`.

    Bernoulli CUSUM (Reynolds and Stoumbos, J. Quality Technology 31, 1999) on the independent
    tokens that a request is worth. With `alive` at half the baseline a draft of 0.7 counts as dying
    below 0.13. Requests without a judged token (K = 0) say nothing and change nothing, unless
    rejections are why there was none: such a request is one more that the draft was no use for.

    >>> collapse = Collapse(alive=0.35)
    >>> next(n for n in range(1, 100) if collapse.update(judged=32, accepted=0, at=float(n)))
    5
    """

    alive: float = 0.15  # the least acceptance of a draft that lives; half its baseline where known
    excursion: Cusum = field(
        default_factory=lambda: Cusum(allowance=0.0, threshold=8.0, at_least=5)
    )

    def update(self, *, judged: int, accepted: int, at: float, rejected_off: bool = False) -> bool:
        """One request. True while the draft looks dead."""
        if not judged:
            if rejected_off and self.excursion.level > 0:
                self._off(at)
            return self.excursion.on
        dead = min(DEAD, self.alive / 4)
        share = accepted / judged
        ratio = share * math.log(dead / self.alive) + (1 - share) * math.log(
            (1 - dead) / (1 - self.alive)
        )
        return self.excursion.update(information(judged) * ratio, at=at)

    def _off(self, at: float) -> None:
        """One more that nothing was drafted for: counted, and as sure as before. The pace has come
        to the same by itself, so half of what would convince us alone is enough."""
        excursion = self.excursion
        excursion.update(0.0, at=at)
        enough = excursion.level > OFF_EVIDENCE * excursion.threshold
        excursion.on = excursion.on or (enough and excursion.requests >= excursion.at_least)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Collapse:
        return cls(stored["alive"], Cusum(**stored["excursion"]))


@dataclass(slots=True)
class RejectedOff:
    """Has the server turned drafting off because the target kept rejecting?

    The server's own pace decides K by what rounds yield and cost (docs/speculation.md). Once K is 0
    hardly anything is judged, so a detector of judged tokens waits for ever: that it came to this
    is the evidence. On from OFF_REQUESTS requests in a row, until one is drafted for again.

    >>> off = RejectedOff()
    >>> [off.update(True, at=float(n), began=0.0) for n in range(1, 7)]
    [False, False, False, False, True, True]
    >>> off.since
    0.0
    """

    since: float = 0.0  # where what was rejected began; seconds since the epoch
    requests: int = 0  # in a row

    @property
    def on(self) -> bool:
        return self.requests >= OFF_REQUESTS

    def update(self, off: bool, *, at: float, began: float | None = None) -> bool:
        """One request; `began` is where the fall began that ended drafting, where it is known."""
        if not off:
            self.requests = 0
            return False
        if self.requests == 0:
            self.since = at if began is None else began
        self.requests += 1
        return self.on
