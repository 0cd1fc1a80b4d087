"""Seconds by batch bucket, context bucket and length, from noisy samples, also where there are few.

A line through all buckets says how seconds grow; a bucket's own samples correct it. No sample moves
a figure far: a stall may take twenty times a round. Knows what is called a length by whoever adds
samples; knows nothing of what was timed.
"""

from __future__ import annotations

import functools
import math
from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from speculation.hazards import MOST_DRAFTED

Floats = NDArray[np.float64]

SHORTEST = 1e-9  # seconds; no clock tells less apart
WINDOW = 16  # samples of a cell that count when it is weighed against another
LATEST = 7  # samples of a cell: their median is its first figure, and replaces one far off
CLIP = 0.3  # in logarithms: how far that is, and what a single sample counts as at most
# A figure moves a little where it is sampled each round, and more where seldom.
LEAST_GAIN, MOST_GAIN, GAIN_ROUNDS = 0.02, 0.15, 300.0
STALE_ROUNDS = 1000.0  # a sample's weight, beside other K's, falls to 1/e over so many rounds
SLOPE = 0.03  # of a forward's fixed cost, per token of its width: believed until measured
NEIGHBOUR = 0.25  # what a sample says of a draft one token longer or shorter
OTHER_BUCKET = 0.02  # what a sample says of a bucket twice or half the size
LENGTHS = np.arange(MOST_DRAFTED + 1.0)
_KERNEL = NEIGHBOUR ** np.abs(LENGTHS[:, None] - LENGTHS[None, :])


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


class _Cells:
    """One bucket's figure by K: a logarithm of seconds, the drift taken out."""

    def __init__(self) -> None:
        self.latest: list[deque[float]] = [deque(maxlen=LATEST) for _ in LENGTHS]
        self.figure = np.zeros(len(LENGTHS))
        self.count = np.zeros(len(LENGTHS))
        self.added = np.zeros(len(LENGTHS))  # when, in samples of the table

    def add(self, length: int, value: float, now: int) -> None:
        """Move a figure by a clipped step, a larger one the longer it went without a sample."""
        gap, self.added[length] = now - self.added[length], now
        count = self.count[length] = self.count[length] + 1
        self.latest[length].append(value)
        middle = lower_median(self.latest[length])
        if count <= LATEST or abs(middle - self.figure[length]) > CLIP:
            self.figure[length] = middle
            return
        gain = max(1.0 / count, min(gap / GAIN_ROUNDS, MOST_GAIN), LEAST_GAIN)
        self.figure[length] += gain * clipped(value - self.figure[length])


class Table:
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
        cells.add(length, math.log(max(seconds, SHORTEST)) - drift, self._added)
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
        weighed, weight = np.zeros(len(LENGTHS)), np.zeros(len(LENGTHS))
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
            steps = np.maximum(LENGTHS, 1.0)
            return steps, steps * rows
        return np.ones_like(LENGTHS), (LENGTHS + 1.0) * rows

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


def clipped(surprise: float) -> float:
    return min(max(surprise, -CLIP), CLIP)


def lower_median(values: Sequence[float] | deque[float]) -> float:
    """Of two, the smaller: stalls only ever add."""
    return sorted(values)[(len(values) - 1) // 2]
