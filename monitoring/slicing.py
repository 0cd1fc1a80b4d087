"""Which slices of a pair's requests fell. Pure: estimates in, names out.

Slices overlap (each request has an adapter, a length and a temperature), so when one adapter falls
every length falls a little. The slice to name is the worst of a kind of which another slice held.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from statistics import NormalDist

from monitoring.facts import SliceFacts
from speculation.records import Interval

ALPHA = 0.05  # over all slices together
LEAST = 8  # requests of a slice before its interval is believed
NORMAL = NormalDist()


def fallen(slices: Sequence[SliceFacts]) -> list[SliceFacts]:
    """Those that lie below what is expected of them, the worst first (Holm, Scand. J. Stat. 6,
    1979); one whose own detector is on is among them."""
    doubts = sorted((doubt, one.name) for one in slices if (doubt := _doubt(one)) is not None)
    sure = set()
    for rank, (doubt, name) in enumerate(doubts):
        if doubt > ALPHA / (len(doubts) - rank):
            break
        sure.add(name)
    down = [one for one in slices if one.name in sure or one.fallen is not None]
    return sorted(down, key=lambda one: -fall(one))


def to_name(slices: Sequence[SliceFacts]) -> SliceFacts | None:
    """The slice that the fall is of; None where it is of everything, or nobody can tell."""
    down = fallen(slices)
    names = {one.name for one in down}
    held = {kind(one) for one in slices if one.name not in names and _believed(one)}
    return next((one for one in down if kind(one) in held), None)


def fall(one: SliceFacts) -> float:
    """How far it lies below what is expected; alpha-hat units."""
    if one.recent is None or one.expected is None:
        return 0.0
    return one.expected.estimate - one.recent.estimate


def kind(one: SliceFacts) -> str:
    """`adapter` of "adapter=tenor", `context` of "context up to 512"."""
    return re.split(r"[= ]", one.name, maxsplit=1)[0]


def _believed(one: SliceFacts) -> bool:
    known = one.recent is not None and one.expected is not None
    return known and one.recent is not None and one.recent.n >= LEAST


def _doubt(one: SliceFacts) -> float | None:
    """How likely it is that it did not fall; None where nothing can be said."""
    if one.recent is None or one.expected is None or not _believed(one):
        return None
    spread = math.hypot(_deviation(one.recent), _deviation(one.expected))
    if spread == 0:
        return 0.0 if fall(one) > 0 else 1.0
    return 1 - NORMAL.cdf(fall(one) / spread)


def _deviation(interval: Interval) -> float:
    """An estimate's standard deviation, from its 95 % interval."""
    return (interval.high - interval.low) / (2 * 1.96)
