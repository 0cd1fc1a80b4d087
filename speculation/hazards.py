"""How likely drafted tokens are kept: pooled over requests, and as one request has shown itself.

Knows counts by draft position; knows nothing of time, cost or tokens. The primitive is the hazard
(accepted over judged at a position). The product of hazards up to a position is its survival: the
Kaplan-Meier estimate, so rounds of different lengths, and blocks cut by the end, pool without bias.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_DRAFTED = 16  # positions kept; the cache's own limit
DEFAULT_HAZARD = 0.6  # before anything is known; a draft worth serving is near it
MEMORY_ROUNDS = 300  # an old round's weight falls to 1/e over so many newer ones
PRIOR_ROUNDS = 4.0  # weight of what was believed before anything was counted
# A request's acceptance strays from the pool's with an intra-request correlation of about 0.10;
# a beta-binomial with it pulls towards the pool with (1 - 0.10) / 0.10 judged tokens.
PRIOR_JUDGED = 9.0
REQUEST_MEMORY = 0.98  # a round, within one request: what it does changes on the way
PIECE_JUDGED = 48.0  # so many judged tokens of one request are one piece of evidence
ALLOWANCE, COLLAPSE = 0.15, 2.0  # of the one-sided CUSUM over pieces, in alpha-hat units


def expected_tokens(hazards: Sequence[float]) -> tuple[float, ...]:
    """E(K) for K = 0, 1, ..., len(hazards): 1 + the sum of survivals up to K.

    >>> expected_tokens((0.5, 0.5))
    (1.0, 1.5, 1.75)
    """
    tokens, survival = [1.0], 1.0
    for hazard in hazards:
        survival *= hazard
        tokens.append(tokens[-1] + survival)
    return tuple(tokens)


@dataclass(slots=True)
class RequestHazards:
    """One request's own counts. One log-odds shift stands for how it differs from the pool.

    Positions are too many for a request's few tokens: all of them teach the one shift.
    """

    judged: float = 0.0
    accepted: float = 0.0
    expected: float = 0.0  # of the judged, accepted had the request been like the pool
    piece_judged: float = 0.0  # the same since the last piece of evidence, not forgotten
    piece_accepted: float = 0.0
    piece_expected: float = 0.0

    def add(self, judged: int, accepted: int, expected: float) -> None:
        self.judged = self.judged * REQUEST_MEMORY + judged
        self.accepted = self.accepted * REQUEST_MEMORY + accepted
        self.expected = self.expected * REQUEST_MEMORY + expected
        self.piece_judged += judged
        self.piece_accepted += accepted
        self.piece_expected += expected

    @property
    def shift(self) -> float:
        """Log-odds to add to every pooled hazard; 0 for a request that has shown nothing."""
        if self.judged == 0.0:
            return 0.0
        pooled = self.expected / self.judged
        own = (self.accepted + PRIOR_JUDGED * pooled) / (self.judged + PRIOR_JUDGED)
        return _log_odds(own) - _log_odds(pooled)


class PooledHazards:
    """Hazards of one drafter over all requests, the old ones forgotten exponentially."""

    def __init__(self) -> None:
        self._believed = [DEFAULT_HAZARD] * MOST_DRAFTED
        self._judged = np.zeros(MOST_DRAFTED)
        self._accepted = np.zeros(MOST_DRAFTED)
        self._lost = 0.0  # the CUSUM
        self._hazards: NDArray[np.float64] | None = None

    @property
    def hazards(self) -> NDArray[np.float64]:
        """[16]. A position seldom judged follows the one before it.

        What was believed of position j is moved, in odds, as far as the counts moved position
        j - 1: with nothing counted there, a short K can still see what a longer one would give.
        """
        if self._hazards is None:
            found, moved = [], 1.0
            counts = zip(self._judged.tolist(), self._accepted.tolist(), strict=True)
            for believed, (judged, accepted) in zip(self._believed, counts, strict=True):
                odds = _odds(believed)
                prior = odds * moved / (1.0 + odds * moved)
                hazard = (accepted + PRIOR_ROUNDS * prior) / (judged + PRIOR_ROUNDS)
                found.append(hazard)
                moved = _odds(hazard) / odds
            self._hazards = np.array(found)
        return self._hazards

    def add(self, round_: Sequence[tuple[RequestHazards, int, int]]) -> None:
        """Count one round of each request: of positions 1 to `judged`, 1 to `accepted` were kept.

        Each item is (request, judged, accepted), with judged at least 1.
        """
        if not round_:
            return
        expected = np.cumsum(self.hazards).tolist()
        fade = (1.0 - 1.0 / MEMORY_ROUNDS) ** len(round_)
        self._judged *= fade
        self._accepted *= fade
        for request, judged, accepted in round_:
            request.add(judged, accepted, expected[judged - 1])
            self._judged[:judged] += 1.0
            self._accepted[:accepted] += 1.0
        self._hazards = None
        for request, _, _ in round_:
            if request.piece_judged >= PIECE_JUDGED:
                self.close_piece(request)

    def close_piece(self, request: RequestHazards) -> None:
        """Weigh a request as one piece of evidence that acceptance has collapsed.

        Tokens of one request are correlated, so a piece counts once, whatever its length. Once the
        pieces fall short of the pool together, the pool's past no longer speaks for the draft.
        """
        if request.piece_judged >= 4.0:
            short = (request.piece_expected - request.piece_accepted) / request.piece_judged
            self._lost = max(0.0, self._lost + short - ALLOWANCE)
            if self._lost > COLLAPSE:
                self.restart()
        request.piece_judged = request.piece_accepted = request.piece_expected = 0.0

    def restart(self, *, rounds: float = 0.0, shift: float = 0.0) -> None:
        """Believe what is believed, but with the weight of `rounds` at most: few change it.

        `shift` is added to its log-odds: how the latest requests differed.
        """
        moved = math.exp(shift)
        odds = [_odds(hazard) * moved for hazard in self.hazards.tolist()]
        self._believed = [each / (1.0 + each) for each in odds]
        kept = min(1.0, rounds / max(self._judged[0], 1.0))
        self._judged *= kept
        self._accepted *= kept
        self._lost = 0.0
        self._hazards = None


def shifted_tokens(hazards: NDArray[np.float64], shifts: Sequence[float]) -> NDArray[np.float64]:
    """E(K) [R, 17] of each of R requests, whose log-odds differ from `hazards` [16] by `shifts`."""
    odds = np.log(np.clip(hazards, 1e-4, 1 - 1e-4) / np.clip(1 - hazards, 1e-4, 1.0))
    own = 1.0 / (1.0 + np.exp(-(odds + np.array(shifts)[:, None])))
    tokens = np.ones((len(shifts), MOST_DRAFTED + 1))
    tokens[:, 1:] += np.cumsum(np.cumprod(own, axis=1), axis=1)
    return tokens


def _odds(hazard: float) -> float:
    bounded = min(max(hazard, 1e-3), 1 - 1e-3)  # beyond these no decision differs
    return bounded / (1.0 - bounded)


def _log_odds(hazard: float) -> float:
    return math.log(_odds(hazard))
