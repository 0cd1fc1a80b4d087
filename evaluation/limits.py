"""One interval against one limit: the only place where PASS, FAIL and INCONCLUSIVE are decided.

PASS when the whole interval lies on the right side of the limit, FAIL when it lies wholly on the
other, INCONCLUSIVE when it spans it or is not known. Knows intervals; not what they are of.
"""

from __future__ import annotations

import math

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
    """PASS when the whole interval is above the limit, FAIL when it is wholly below."""
    if interval is None or not math.isfinite(interval.low + interval.high):
        return _untold(rule, told, limit)
    if interval.low > limit:
        return Finding(rule, Phase.PASS, told, interval, limit)
    if interval.high < limit:
        return Finding(rule, Phase.FAIL, told, interval, limit)
    more = more_needed(interval, limit, alpha=policy.alpha, log=log)
    return Finding(
        rule, Phase.INCONCLUSIVE, f"{told}; {_how_many(more, each, unit)}", interval, limit
    )


def below(rule: str, told: str, interval: Interval | None, limit: float, policy: Policy) -> Finding:
    """The same for a ratio that has to stay below the limit."""
    if interval is None or not math.isfinite(interval.low + interval.high):
        return _untold(rule, told, limit)
    if interval.high < limit:
        return Finding(rule, Phase.PASS, told, interval, limit)
    if interval.low > limit:
        return Finding(rule, Phase.FAIL, told, interval, limit)
    more = more_needed(interval, limit, alpha=policy.alpha, log=True)
    return Finding(
        rule, Phase.INCONCLUSIVE, f"{told}; {_how_many(more, 1, 'prompts')}", interval, limit
    )


def _untold(rule: str, told: str, limit: float) -> Finding:
    return Finding(
        rule, Phase.INCONCLUSIVE, f"{told}: what was measured does not tell", None, limit
    )


def _how_many(more: int | None, each: int, unit: str) -> str:
    if more is None or more * each > FAR_TOO_MANY:
        return f"it lies on the limit, which no number of {unit} resolves"
    return f"the interval spans the limit: about {more * each} more {unit} would decide"


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
