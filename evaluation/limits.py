"""One interval against one limit: the only place where PASS, FAIL and INCONCLUSIVE are decided.

PASS when the whole interval lies on the right side of the limit, FAIL when it lies wholly on the
other, INCONCLUSIVE when it spans it or is not known. Knows intervals; not what they are of.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeGuard

from evaluation.policy import Policy
from evaluation.statistics import more_needed
from speculation.records import Finding, Interval, Phase

FAR_TOO_MANY = 100_000  # prompts; above it the difference is, in practice, the limit itself


def above(
    rule: str,
    told: str,
    interval: Interval | None,
    limit: float,
    policy: Policy,
    *,
    log: bool = False,
    each: int = 1,
    unit: str = "prompts",
) -> Finding:
    """PASS when the whole interval is above the limit, FAIL when it is wholly below.

    `log` as the interval was made; `each` prompts make one of its units.
    """
    if not known(interval):
        return untold(rule, told, limit)
    if interval.low > limit:
        return Finding(rule, Phase.PASS, told, interval, limit)
    if interval.high < limit:
        return Finding(rule, Phase.FAIL, told, interval, limit)
    return spanning(rule, told, interval, limit, policy, log=log, each=each, unit=unit)


def below(
    rule: str,
    told: str,
    interval: Interval | None,
    limit: float,
    policy: Policy,
    *,
    each: int = 1,
    unit: str = "prompts",
) -> Finding:
    """The same for a ratio that has to stay below the limit."""
    if not known(interval):
        return untold(rule, told, limit)
    if interval.high < limit:
        return Finding(rule, Phase.PASS, told, interval, limit)
    if interval.low > limit:
        return Finding(rule, Phase.FAIL, told, interval, limit)
    return spanning(rule, told, interval, limit, policy, log=True, each=each, unit=unit)


def within(
    rule: str, told: str, interval: Interval | None, margin: float, policy: Policy
) -> Finding:
    """For a difference that may be neither much above 0 nor much below: PASS when the whole
    interval is within the margin, FAIL when it is wholly outside. The nearer limit is shown."""
    if not known(interval):
        return untold(rule, told, margin)
    limit = margin if interval.estimate >= 0 else -margin
    if -margin < interval.low and interval.high < margin:
        return Finding(rule, Phase.PASS, told, interval, limit)
    if interval.low > margin or interval.high < -margin:
        return Finding(rule, Phase.FAIL, told, interval, limit)
    return spanning(rule, told, interval, limit, policy)


def known(interval: Interval | None) -> TypeGuard[Interval]:
    """Whether there is an interval with finite bounds."""
    return interval is not None and math.isfinite(interval.low + interval.estimate + interval.high)


def untold(rule: str, told: str, limit: float) -> Finding:
    """A figure that the data do not give."""
    return Finding(
        rule, Phase.INCONCLUSIVE, f"{told}: what was measured does not tell", None, limit
    )


def spanning(
    rule: str,
    told: str,
    interval: Interval,
    limit: float,
    policy: Policy,
    *,
    log: bool = False,
    each: int = 1,
    unit: str = "prompts",
) -> Finding:
    """An interval that holds the limit, with how much more would probably decide."""
    units = more_needed(interval, limit, alpha=policy.alpha, log=log)
    more = None if units is None or units * each > FAR_TOO_MANY else units * each
    ending = (
        f"it lies on the limit, which no number of {unit} resolves"
        if more is None
        else f"the interval spans the limit: about {more} more {_plural(unit, more)} would decide"
    )
    return Finding(rule, Phase.INCONCLUSIVE, f"{told}; {ending}", interval, limit, more)


def _plural(unit: str, number: int) -> str:
    return unit.replace("prompts", "prompt", 1) if number == 1 else unit


def possible(interval: Interval | None) -> Interval | None:
    """The interval of a share as people are shown it, within 0 to 1; it is judged as it is."""
    if interval is None:
        return None
    return replace(interval, low=max(0.0, interval.low), high=min(1.0, interval.high))


def plainly(interval: Interval | None) -> str:
    """A share or a ratio for people."""
    if interval is None:
        return "an unknown share"
    return f"{interval.estimate:.3f} ({interval.low:.3f} to {interval.high:.3f})"


def signed(interval: Interval | None) -> str:
    """A difference for people."""
    if interval is None:
        return "unknown size"
    return f"{interval.estimate:+.3f} ({interval.low:+.3f} to {interval.high:+.3f})"
