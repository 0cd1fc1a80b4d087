"""Facts in, an alarm or None out. Pure: no clock, no statistics of its own, no files.

Knows causes and what each advises; knows nothing of how facts were gathered. The most specific
cause wins: a mismatch needs no statistics, and a dead draft is not also a drift.
"""

from __future__ import annotations

import hashlib

from monitoring.facts import Facts
from speculation.records import Alarm


def diagnose(facts: Facts) -> Alarm | None:
    """The one cause that explains the facts; None when nothing is wrong or it is too early."""
    if mismatched(facts.release, facts.expected_release):
        since = facts.at if facts.mismatched_since is None else facts.mismatched_since
        return _alarm(
            facts,
            "release_mismatch",
            since,
            f"pair {facts.pair} was validated for release {str(facts.expected_release)[:12]} but "
            f"{facts.release[:12]} is served: load the pair of this release, or fall back to ngram "
            "until there is one",
            requests=0,
        )
    if facts.dead is not None:
        return _alarm(
            facts,
            "dead_draft",
            facts.dead.since,
            f"the draft of pair {facts.pair} is dead: alpha-hat {_read(facts)}. Output stays right "
            "but every round is wasted: reload the pair, or turn speculation off",
            requests=facts.recent.n if facts.recent else facts.dead.requests,
            level=facts.dead.level,
        )
    if facts.fallen is not None and not facts.dying:
        return _alarm(
            facts,
            "drift",
            facts.fallen.since,
            f"acceptance of pair {facts.pair} fell: alpha-hat {_read(facts)}. Promote a better "
            "pair if there is one, else retrain on recent traffic",
            requests=facts.recent.n if facts.recent else facts.fallen.requests,
            level=facts.fallen.level,
        )
    return None


def mismatched(release: str, expected: str | None) -> bool:
    """Is another release served than the pair's? A digest that is not known accuses nobody."""
    return bool(release and expected) and release != expected


def alarm_id(pair: str, drafter: str, cause: str, since: float) -> str:
    """Fixed by the matter and where it began, so that raising it again is raising it once."""
    text = "\n".join((pair, drafter, cause, f"{since:.3f}"))
    return "a-" + hashlib.sha256(text.encode()).hexdigest()[:16]


def _alarm(
    facts: Facts, cause: str, since: float, statement: str, *, requests: int, level: float = 0.0
) -> Alarm:
    evidence = {"level": level} if level else {}
    for name, interval in (("acceptance", facts.recent), ("baseline", facts.baseline)):
        if interval is not None and requests:
            evidence |= {
                name: interval.estimate,
                f"{name}_low": interval.low,
                f"{name}_high": interval.high,
            }
    return Alarm(
        alarm_id(facts.pair, facts.drafter, cause, since),
        facts.pair,
        facts.release,
        cause,
        statement,
        since,
        requests,
        evidence,
    )


def _read(facts: Facts) -> str:
    """The estimate beside what was expected; n in it counts requests."""
    read = "unknown" if facts.recent is None else str(facts.recent)
    return read if facts.baseline is None else f"{read}, expected {facts.baseline}"
