"""How often a drafter that is asked proposes anything, over all rows of all requests.

A causal model and a head always do; an n-gram draft only where its context repeats itself, and a
round without a proposal is a plain one that was preceded by a look. Knows counts; knows nothing of
time and tokens.
"""

from __future__ import annotations

from speculation.hazards import MEMORY_ROUNDS, PRIOR_ROUNDS


class Proposing:
    """The share of asked rows that got a draft, the old ones forgotten exponentially."""

    def __init__(self) -> None:
        # Believed at first: each that is asked drafts. Exactly 1 as long as that is so.
        self._asked = self._proposed = PRIOR_ROUNDS

    @property
    def share(self) -> float:
        """In (0, 1]."""
        return self._proposed / self._asked

    def add(self, proposed: int, in_vain: int) -> None:
        """Count one round's rows."""
        rows = proposed + in_vain
        fade = (1.0 - 1.0 / MEMORY_ROUNDS) ** rows
        self._asked = self._asked * fade + rows
        self._proposed = self._proposed * fade + proposed

    def some(self, rows: int) -> float:
        """How likely one of `rows` at least drafts."""
        return 1.0 - (1.0 - self.share) ** rows
