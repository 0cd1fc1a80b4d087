"""Has the mix of requests changed, and is that why acceptance moved? What raises `mix_shift`.

A service that gets more of what was always accepted less has no worse draft. Knows shares and
hazards of slices by name; knows nothing of what slices are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

ALPHA = 1e-6  # a test at each look
MOVED = 0.02  # alpha-hat that the mix has to explain before anybody hears of it
NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Split:
    """What a change of a mean is made of."""

    by_mix: float  # other shares, at the acceptance of before
    within: float  # other acceptance in the slices, at the shares of now


def split(
    before: Mapping[str, float],
    now: Mapping[str, float],
    *,
    were: Mapping[str, float],
    are: Mapping[str, float],
) -> Split:
    """Kitagawa's two parts (J. Am. Statist. Assoc. 50, 1955): `before` and `now` are the slices'
    shares, `were` and `are` their acceptance. What has no acceptance on either side is left out.

    >>> was, now, same = {"a": 0.8, "b": 0.2}, {"a": 0.2, "b": 0.8}, {"a": 0.8, "b": 0.5}
    >>> found = split(was, now, were=same, are=same)
    >>> (round(found.by_mix, 3), round(found.within, 3))
    (-0.18, 0.0)
    """
    by_mix = sum(
        (now.get(name, 0.0) - before.get(name, 0.0)) * value for name, value in were.items()
    )
    within = sum(
        now.get(name, 0.0) * (value - were[name]) for name, value in are.items() if name in were
    )
    return Split(by_mix, within)


def g_statistic(before: Mapping[str, float], now: Mapping[str, float]) -> tuple[float, int]:
    """The likelihood-ratio test of two rows of counts (Sokal and Rohlf, Biometry, ch. 17): G and
    its degrees of freedom.

    >>> g, degrees = g_statistic({"a": 800, "b": 200}, {"a": 50, "b": 150})
    >>> (round(g, 2), degrees)
    (222.99, 1)
    """
    names = [name for name in before.keys() | now.keys() if before.get(name, 0) + now.get(name, 0)]
    rows = (sum(before.values()), sum(now.values()))
    if not all(rows) or len(names) < 2:
        return 0.0, 0
    total, g = sum(rows), 0.0
    for name in names:
        column = before.get(name, 0) + now.get(name, 0)
        for row, counts in zip(rows, (before, now), strict=True):
            if seen := counts.get(name, 0):
                g += 2 * seen * math.log(seen * total / (row * column))
    return g, len(names) - 1


def p_value(g: float, degrees: int) -> float:
    """The chance of a chi-squared value so high (Wilson and Hilferty, PNAS 17, 1931).

    >>> [round(p_value(g, degrees), 3) for g, degrees in ((3.84, 1), (18.31, 10))]
    [0.047, 0.05]
    """
    if degrees < 1:
        return 1.0
    spread = 2 / (9 * degrees)
    return NORMAL.cdf(-((g / degrees) ** (1 / 3) - 1 + spread) / math.sqrt(spread))


@dataclass(slots=True)
class MixShift:
    """Do the shares differ beyond chance, and by enough to show in acceptance? On while they do.

    >>> mix = MixShift()
    >>> were = {"a": 0.8, "b": 0.5}
    >>> mix.update({"a": 800, "b": 200}, {"a": 320, "b": 80}, were=were, at=1.0)
    False
    >>> mix.update({"a": 800, "b": 200}, {"a": 80, "b": 320}, were=were, at=2.0)
    True
    >>> (round(mix.by_mix, 2), mix.since)
    (-0.18, 2.0)
    """

    on: bool = False
    since: float = 0.0
    p_value: float = 1.0
    by_mix: float = 0.0

    def update(
        self,
        before: Mapping[str, float],  # requests by slice that the baseline rests on
        now: Mapping[str, float],  # the last ones
        *,
        were: Mapping[str, float],  # acceptance of slices in the baseline
        at: float,
    ) -> bool:
        """Look at the last requests. True while their mix explains a change."""
        g, degrees = g_statistic(before, now)
        self.p_value = p_value(g, degrees)
        self.by_mix = split(_shares(before), _shares(now), were=were, are={}).by_mix
        moved = self.p_value < ALPHA and abs(self.by_mix) > MOVED
        if moved and not self.on:
            self.since = at
        self.on = moved
        return moved


def _shares(counts: Mapping[str, float]) -> dict[str, float]:
    total = sum(counts.values())
    return {name: seen / total for name, seen in counts.items()} if total else {}
