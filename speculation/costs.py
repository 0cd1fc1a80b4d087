"""What a round costs: seconds of the target, the draft and the host, as measured in this process.

Knows batch sizes, contexts, widths and seconds; knows nothing of tokens, clocks or models. Timings
of a shared machine are noisy: a stall may take twenty times a round, and the machine's speed drifts
by tens of percent over minutes. So no sample moves a figure far, and every sample
is divided by the machine's common drift first: what counts here are ratios, and one
length of draft is not dear because it was last tried in a bad minute.
"""

from __future__ import annotations

import functools
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from speculation.hazards import MOST_DRAFTED, expected_tokens

Floats = NDArray[np.float64]

WINDOW = 16  # samples of a cell that count when it is weighed against another
LATEST = 7  # samples of a cell: their median is its first figure, and replaces one far off
LASTING = 3  # rounds in a row as far off as this are no stall: the machine has changed its speed
CLIP = 0.3  # in logarithms: how far that is, and what a single sample counts as at most
# A figure moves a little where it is sampled each round, and more where seldom. The drift moves
# by the same clipped surprise, and by much more: so the two cannot creep apart, which would leave
# behind the figures that are seldom sampled, and a lasting change of speed is the machine's.
DRIFT_GAIN = 0.3
LEAST_GAIN, MOST_GAIN, GAIN_ROUNDS = 0.02, 0.15, 300.0
STALE_ROUNDS = 1000.0  # a sample's weight, beside other K's, falls to 1/e over so many rounds
SLOPE = 0.03  # of a forward's fixed cost, per token of its width: believed until measured
NEIGHBOUR = 0.25  # what a sample says of a draft one token longer or shorter
OTHER_BUCKET = 0.02  # what a sample says of a bucket twice or half the size
_LENGTHS = np.arange(MOST_DRAFTED + 1.0)
_KERNEL = NEIGHBOUR ** np.abs(_LENGTHS[:, None] - _LENGTHS[None, :])


@functools.cache
def batch_bucket(batch: int) -> int:
    """The nearest, in ratio, of 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, ...

    Two to an octave: within a wider bucket a larger batch is slower by enough to pass for a
    cost of drafting wherever K follows the batch.

    >>> [batch_bucket(n) for n in (1, 2, 3, 5, 7, 9, 11, 40)]
    [1, 2, 3, 6, 8, 8, 12, 48]
    """
    octave = 1 << (max(batch, 1).bit_length() - 1)
    near = (octave, octave * 3 // 2, octave * 2)
    return min(near, key=lambda bucket: abs(math.log(bucket / max(batch, 1))))


@functools.cache
def context_bucket(context: int) -> int:
    """The smallest of 256, 1,024, 4,096, ... that holds `context` tokens."""
    bucket = 256
    while bucket < context:
        bucket *= 4
    return bucket


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
        a_token: Floats = self.draft / np.maximum(_LENGTHS, 1.0) / self.target[0]
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
        self._target = _Table(by_length=False)
        self._draft = _Table(by_length=True)  # by rows that draft, not by rows in the batch
        self._overhead = _Table(by_length=False)
        self._reading: deque[float] = deque(maxlen=WINDOW)  # seconds a token, the drift taken out

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
        caught_up: int = 0,
    ) -> float:
        """Fold in a round of `batch` rows whose target forward was `width` positions wide.

        `drafted` is the longest draft and `drafting` the rows that had one (all, if not said).
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
        return surprise

    def estimate(
        self, batch: int, context: int, *, drafting: int | None = None
    ) -> RoundCosts | None:
        """What a round would cost, from this bucket's samples and, where it has few, from
        the others'. None until a target forward and a draft have been timed at all."""
        target = self._target.curve(batch, context)
        draft = self._draft.curve(batch if drafting is None else drafting, context)
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
        return tokens * _lower_median(self._reading) * math.exp(self._drift)

    def _follow_drift(self, batch: int, context: int, width: int, seconds: float) -> float:
        usual = self._target.usual(batch, context, width - 1)
        if usual is None:
            return 0.0
        strayed = math.log(max(seconds, _SHORTEST)) - usual
        surprise = strayed - self._drift
        self._strayed.append(strayed)
        far = [each - self._drift for each in self._strayed]
        if len(far) == LASTING and (min(far) > CLIP or max(far) < -CLIP):
            self._drift = _lower_median(self._strayed)
        else:
            self._drift += DRIFT_GAIN * _clipped(surprise)
        return surprise


_SHORTEST = 1e-9  # seconds; no clock tells less apart


class _Cells:
    """One bucket's figure by K: a logarithm of seconds, the drift taken out."""

    def __init__(self) -> None:
        self.latest: list[deque[float]] = [deque(maxlen=LATEST) for _ in _LENGTHS]
        self.figure = np.zeros(len(_LENGTHS))
        self.count = np.zeros(len(_LENGTHS))
        self.added = np.zeros(len(_LENGTHS))  # when, in samples of the table

    def add(self, length: int, value: float, now: int) -> None:
        """Move a figure by a clipped step, a larger one the longer it went without a sample."""
        gap, self.added[length] = now - self.added[length], now
        count = self.count[length] = self.count[length] + 1
        self.latest[length].append(value)
        middle = _lower_median(self.latest[length])
        if count <= LATEST or abs(middle - self.figure[length]) > CLIP:
            self.figure[length] = middle
            return
        gain = max(1.0 / count, min(gap / GAIN_ROUNDS, MOST_GAIN), LEAST_GAIN)
        self.figure[length] += gain * _clipped(value - self.figure[length])


class _Table:
    """Seconds of one part of a round: a line through all buckets, corrected by each one's own.

    The line says how seconds grow with the tokens of a forward, rows times width (for the draft:
    the rows, a step). It is what a bucket without samples starts from; a bucket's samples
    then move it at their own K, and half as much at each K beside it.
    """

    def __init__(self, *, by_length: bool) -> None:
        self._by_length = by_length
        self._buckets: dict[tuple[int, int], _Cells] = {}
        self._line = (1.0, SLOPE)
        self._added = 0

    def add(self, rows: int, context: int, length: int, seconds: float, drift: float) -> None:
        key = (batch_bucket(rows), context_bucket(context))
        cells = self._buckets.setdefault(key, _Cells())
        self._added += 1
        cells.add(length, math.log(max(seconds, _SHORTEST)) - drift, self._added)
        if self._added < 64 or self._added % 16 == 0:
            self._fit()

    def usual(self, rows: int, context: int, length: int) -> float | None:
        """The cell's own figure, once it has three samples."""
        cells = self._buckets.get((batch_bucket(rows), context_bucket(context)))
        if cells is None or cells.count[length] < 3:
            return None
        return float(cells.figure[length])

    def samples(self, rows: int, context: int) -> tuple[int, int]:
        cells = self._buckets.get((batch_bucket(rows), context_bucket(context)))
        return (0, 0) if cells is None else (int(cells.count[0]), int(cells.count[1:].sum()))

    def curve(self, rows: int, context: int) -> Floats | None:
        """Seconds at K = 0 to 16 [17], the drift taken out."""
        if not self._buckets:
            return None
        key = (batch_bucket(rows), context_bucket(context))
        weighed, weight = np.zeros(len(_LENGTHS)), np.zeros(len(_LENGTHS))
        own = self._buckets.get(key)
        if own is None or own.count.sum() < WINDOW:
            for other in self._buckets:
                if other != key:
                    share = OTHER_BUCKET / _distance(key, other) ** 2
                    off, near = self._offsets(other)
                    weighed, weight = weighed + share * off, weight + share * near
        if own is not None:
            off, near = self._offsets(key)
            weighed, weight = weighed + off, weight + near
        curve: Floats = self._expected(key[0]) * np.exp(weighed / weight)
        return curve

    def _offsets(self, key: tuple[int, int]) -> tuple[Floats, Floats]:
        """A bucket's weighted distance from the line at each K, in logarithms, and the weights."""
        cells = self._buckets[key]
        fresh = np.minimum(cells.count, WINDOW) * np.exp(
            (cells.added - cells.added.max()) / STALE_ROUNDS
        )
        off = fresh * (cells.figure - np.log(self._expected(key[0])))
        return _KERNEL @ off, _KERNEL @ fresh

    def _expected(self, rows: int) -> Floats:
        fixed, growing = self._features(rows)
        line: Floats = self._line[0] * fixed + self._line[1] * growing
        return line

    def _features(self, rows: int) -> tuple[Floats, Floats]:
        if self._by_length:
            steps = np.maximum(_LENGTHS, 1.0)
            return steps, steps * rows
        return np.ones_like(_LENGTHS), (_LENGTHS + 1.0) * rows

    def _fit(self) -> None:
        """Least squares of relative errors over all cells, with one sample's weight on `SLOPE`."""
        rows = []
        for (batch, _), cells in self._buckets.items():
            fixed, growing = self._features(batch)
            seen = cells.count > 0
            scale = cells.count[seen] ** 0.5 / np.exp(cells.figure[seen])
            rows.append(np.stack([fixed[seen] * scale, growing[seen] * scale, scale]))
            rows[-1][2] = cells.count[seen] ** 0.5
        every = np.concatenate(rows, axis=1)  # [3, cells]
        relative = every / every[2]
        x = relative[1].mean()
        believed = np.array([[-SLOPE * x], [x], [0.0]])
        fixed_, growing_, wanted = np.concatenate([every, believed], axis=1)
        a, b, d = fixed_ @ fixed_, fixed_ @ growing_, growing_ @ growing_
        p, q = fixed_ @ wanted, growing_ @ wanted
        determinant = a * d - b * b
        intercept, slope = (p * d - q * b) / determinant, (a * q - b * p) / determinant
        if slope < 0:  # noise: nothing gets faster with more tokens
            intercept, slope = p / a, 0.0
        elif intercept <= 0:
            intercept, slope = 0.0, q / d
        self._line = (float(intercept), float(slope))


def _distance(key: tuple[int, int], other: tuple[int, int]) -> float:
    """Octaves of batch, which a forward's shape follows, and a quarter as much of context."""
    return abs(math.log2(other[0] / key[0])) + abs(math.log2(other[1] / key[1])) / 4


def _rising(curve: Floats) -> Floats:
    """The mean of the lowest rising curve above and the highest one below: rising itself."""
    above = np.maximum.accumulate(curve)
    below = np.minimum.accumulate(curve[::-1])[::-1]
    rising: Floats = (above + below) / 2
    return rising


def _clipped(surprise: float) -> float:
    return min(max(surprise, -CLIP), CLIP)


def _lower_median(values: Sequence[float] | deque[float]) -> float:
    """Of two, the smaller: stalls only ever add."""
    return sorted(values)[(len(values) - 1) // 2]
