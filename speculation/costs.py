"""What a round costs: seconds of the target, the draft and the host, as measured in this process.

Knows batch sizes, contexts, widths and seconds; knows nothing of tokens, clocks or models. Timings
of a shared machine are noisy: a stall may take twenty times a round, and the machine's speed drifts
by tens of percent over minutes. So no sample moves a figure far (`timings`), and every sample is
divided by the machine's common drift first: what counts here are ratios, and one length of draft is
not dear because it was last tried in a bad minute.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from speculation.hazards import MOST_DRAFTED, expected_tokens
from speculation.timings import (
    CLIP,
    LENGTHS,
    SHORTEST,
    WINDOW,
    Floats,
    Table,
    clipped,
    lower_median,
)

LASTING = 3  # rounds in a row further off than CLIP are no stall: the machine's speed has changed
# The drift moves by the same clipped surprise as a figure, and by much more: so the two cannot
# creep apart, which would leave behind the figures that are seldom sampled, and a lasting change of
# speed is the machine's.
DRIFT_GAIN = 0.3


@dataclass(frozen=True, slots=True, eq=False)
class RoundCosts:
    """Seconds of one round of a batch for K = 0 to 16, each [17]. K = 0 is a plain round."""

    target: Floats  # a forward of K + 1 positions a row
    draft: Floats  # drafting K tokens a row, with reading what the last round committed
    overhead: Floats  # everything else: the host's work, sampling, verification

    @property
    def seconds(self) -> Floats:
        return self.target + self.draft + self.overhead

    @property
    def c(self) -> Floats:
        """A drafted token over a plain target forward, by K; 0 at K = 0."""
        a_token: Floats = self.draft / np.maximum(LENGTHS, 1.0) / self.target[0]
        return a_token

    @property
    def v(self) -> Floats:
        """v(K) = T(K + 1) / T(1)."""
        ratio: Floats = self.target / self.target[0]
        return ratio

    @property
    def o(self) -> Floats:
        """The overhead over a plain target forward, by K."""
        ratio: Floats = self.overhead / self.target[0]
        return ratio


def speedup(hazards: Sequence[float], costs: RoundCosts) -> tuple[float, ...]:
    """S(K) over plain decoding for K = 0, 1, ..., len(hazards); S(0) is 1.

    S(K) = E(K) (1 + o(0)) / (K c + v(K) + o(K)): a plain round has its own host overhead o(0),
    which the usual form of the rule leaves out, and so under-predicts where the host is slow.

    >>> flat = RoundCosts(np.full(17, 0.02), 0.002 * np.arange(17), np.zeros(17))
    >>> [round(s, 2) for s in speedup((0.8, 0.8, 0.8), flat)]
    [1.0, 1.64, 2.03, 2.27]
    """
    seconds = costs.seconds
    tokens = expected_tokens(list(hazards)[:MOST_DRAFTED])
    return tuple(float(e * seconds[0] / seconds[k]) for k, e in enumerate(tokens))


class Costs:
    """Measured seconds by batch bucket, context bucket and K. One per drafter of an engine."""

    def __init__(self) -> None:
        self._drift = 0.0  # logarithm of how slow the machine is now
        self._strayed: deque[float] = deque(maxlen=LASTING)  # the same, by each latest round
        self._target = Table(by_length=False)
        self._draft = Table(by_length=True)  # by rows that draft, not by rows in the batch
        self._overhead = Table(by_length=False)
        self._reading: deque[float] = deque(maxlen=WINDOW)  # seconds a token, the drift taken out
        self._vain: deque[float] = deque(maxlen=WINDOW)  # seconds a row asked, the drift taken out

    def observe(
        self,
        batch: int,
        context: int,
        width: int,
        target_seconds: float,
        draft_seconds: float,
        drafted: int,
        overhead_seconds: float,
        *,
        drafting: int | None = None,
        in_vain: int = 0,
        caught_up: int = 0,
    ) -> float:
        """Fold in a round of `batch` rows whose target forward was `width` positions wide.

        `drafted` is the longest draft and `drafting` the rows that had one (all, if not said);
        for `in_vain` more the drafter was asked and had none.
        `caught_up` counts the committed tokens the draft had to read first where that was more than
        a round's own block: such a round tells what reading costs, and nothing of drafting.
        Returns how far, as a logarithm, the target's seconds were from what was expected.
        """
        surprise = self._follow_drift(batch, context, width, target_seconds)
        drift = self._drift
        rows = batch if drafting is None else drafting
        self._target.add(batch, context, width - 1, target_seconds, drift)
        self._overhead.add(batch, context, width - 1, overhead_seconds, drift)
        if caught_up:
            drafting_only = self._draft.curve(rows, context)
            spent = 0.0 if drafting_only is None else drafting_only[drafted] * math.exp(drift)
            self._reading.append(max(draft_seconds - spent, 0.0) / caught_up * math.exp(-drift))
        elif drafted:
            self._draft.add(rows, context, drafted, draft_seconds, drift)
        elif in_vain:
            self._vain.append(draft_seconds / in_vain * math.exp(-drift))
        return surprise

    def estimate(
        self, batch: int, context: int, *, drafting: int | None = None
    ) -> RoundCosts | None:
        """What a round would cost, from this bucket's samples and, where it has few, from
        the others'. None until a target forward and a drafter have been timed at all."""
        target = self._target.curve(batch, context)
        draft = self._draft.curve(batch if drafting is None else drafting, context)
        if draft is None and self._vain:  # it never drafted: nothing but the asking is known
            draft = np.full(len(LENGTHS), lower_median(self._vain))
        overhead = self._overhead.curve(batch, context)
        if target is None or draft is None or overhead is None:
            return None
        draft[0] = 0.0
        slow = math.exp(self._drift)
        return RoundCosts(_rising(target) * slow, _rising(draft) * slow, _rising(overhead) * slow)

    def samples(self, batch: int, context: int) -> tuple[int, int]:
        """Samples that count of this bucket's plain and of its wider target forwards."""
        return self._target.samples(batch, context)

    def reading_seconds(self, tokens: float) -> float:
        """For the draft to read `tokens` committed tokens; 0 until that was seen."""
        if not self._reading:
            return 0.0
        return tokens * lower_median(self._reading) * math.exp(self._drift)

    def vain_seconds(self, rows: int) -> float:
        """For a drafter that is asked for `rows` and has nothing; 0 until that was seen."""
        if not self._vain:
            return 0.0
        return rows * lower_median(self._vain) * math.exp(self._drift)

    def _follow_drift(self, batch: int, context: int, width: int, seconds: float) -> float:
        usual = self._target.usual(batch, context, width - 1)
        if usual is None:
            return 0.0
        strayed = math.log(max(seconds, SHORTEST)) - usual
        surprise = strayed - self._drift
        self._strayed.append(strayed)
        far = [each - self._drift for each in self._strayed]
        if len(far) == LASTING and (min(far) > CLIP or max(far) < -CLIP):
            self._drift = lower_median(self._strayed)
        else:
            self._drift += DRIFT_GAIN * clipped(surprise)
        return surprise


def _rising(curve: Floats) -> Floats:
    """The mean of the lowest rising curve above and the highest one below: rising itself."""
    above = np.maximum.accumulate(curve)
    below = np.minimum.accumulate(curve[::-1])[::-1]
    rising: Floats = (above + below) / 2
    return rising
