"""Puts an incumbent that was measured in another report beside a candidate, if the two compare.

Acceptance depends on the release, its adapters, the prompts, K, how tokens are drawn and how the
server was started; where one of these differs the difference between two drafts is not the drafts'.
Where one report does not tell, it may differ. Judges nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from evaluation.completeness import CANDIDATE, INCUMBENT
from evaluation.report import Report
from evaluation.samples import ACCEPTANCE, AGAIN
from evaluation.soundness import misdescribed, unsound

SAME = {  # of the conditions, in words
    "release": "release",
    "prompts_digest": "prompts",
    "draft_len": "draft length K",
    "temperatures": "temperatures",
    "max_tokens": "longest answer",
    "seed": "seed",
    "engine": "engine",
    "max_slots": "requests decoded at once",
    "max_context": "longest context",
    "dtype": "precision",
}


class ComparisonError(ValueError):
    """Two reports of which nothing can be said together."""


def differences(report: Report, other: Report) -> list[str]:
    """What differs between two measurements that would have to be the same, for people."""
    ours, theirs = report.conditions, other.conditions
    found = [
        f"{words} {_short(getattr(ours, name))} and {_short(getattr(theirs, name))}"
        for name, words in SAME.items()
        if getattr(ours, name) != getattr(theirs, name)
    ]
    found += _adapters(ours.adapters, theirs.adapters)
    if _without_seeds(report) != _without_seeds(other):
        found.append("whether drafts drew with a seed, as an earlier version had them")
    return found


def _adapters(ours: Mapping[str, str] | None, theirs: Mapping[str, str] | None) -> list[str]:
    """The target's, by name: another one of a name answers otherwise."""
    if ours is None or theirs is None:
        return [] if ours == theirs else ["whether it is known which adapters there were"]
    return [
        f"adapter {name} {_short(ours.get(name, 'none'))} and {_short(theirs.get(name, 'none'))}"
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name) != theirs.get(name)
    ]


def _without_seeds(report: Report) -> bool:
    """Whether drafts were asked as users ask: a seed lowers what is accepted where tokens are
    drawn. Where they are not there is no difference."""
    return not any(report.conditions.temperatures) or bool(report.of(CANDIDATE, AGAIN))


def beside(report: Report, other: Report) -> Report:
    """`report` with the draft that `other` measured as its incumbent: there the candidate, or the
    incumbent where there was no candidate.

    Raises ComparisonError with every difference.
    """
    if INCUMBENT in report.arms:
        raise ComparisonError(
            "got a second report beside one that holds its incumbent, wanted one of the two: what "
            "was measured in the same run is the better comparison"
        )
    arm = CANDIDATE if CANDIDATE in other.arms else INCUMBENT
    if arm not in other.arms:
        raise ComparisonError(
            f"got an incumbent's report with the arms {', '.join(other.arms)}, wanted a candidate "
            "or an incumbent among them"
        )
    if found := differences(report, other):
        raise ComparisonError(
            f"the two reports are not comparable, they differ in {'; '.join(found)}: measure the "
            "incumbent again in the candidate's run (`paceline evaluate --incumbent`)"
        )
    _fit(report, other, arm)
    theirs = tuple(
        replace(request, arm=INCUMBENT)
        for request in other.requests
        if request.arm == arm and request.run == ACCEPTANCE  # speed is held against plain only
    )
    conditions = report.conditions
    return replace(
        report,
        conditions=replace(
            conditions, pairs={**conditions.pairs, INCUMBENT: other.conditions.pairs[arm]}
        ),
        requests=(*report.requests, *theirs),
        errors={**report.errors, INCUMBENT: other.errors.get(arm, 0)},
        incomplete=report.incomplete or other.incomplete,
        facts=replace(
            report.facts,
            learned=tuple(dict.fromkeys((*report.facts.learned, *other.facts.learned))),
            unknown=(*report.facts.unknown, *((INCUMBENT,) if arm in other.facts.unknown else ())),
        ),
    )


def _fit(report: Report, other: Report, arm: str) -> None:
    """Whether what `other` measured as `arm` can be the incumbent. Raises ComparisonError."""
    pair = other.conditions.pairs[arm]
    if pair == report.conditions.pairs.get(CANDIDATE):
        raise ComparisonError(
            f"got an incumbent's report whose {arm} is pair {pair}, which is the candidate itself: "
            "wanted the report of the draft that serves now"
        )
    if [(p.id, p.digest) for p in report.prompts] != [(p.id, p.digest) for p in other.prompts]:
        raise ComparisonError(
            "the two reports are not comparable, they do not list the same prompts: measure the "
            "incumbent again in the candidate's run (`paceline evaluate --incumbent`)"
        )
    if other.facts.incompatible != ():
        reasons = other.facts.incompatible
        why = "nobody compared its tokens" if reasons is None else "; ".join(reasons)
        raise ComparisonError(
            f"got an incumbent's report whose draft is not known to fit the target ({why}): wanted "
            "one of a draft that can serve"
        )
    if other.looks is not None and other.looks.planned[1:]:
        raise ComparisonError(
            f"got an incumbent's report that ended at look {other.looks.number} of at most "
            f"{len(other.looks.planned)}, when its figures said so, which are then no fair sample: "
            "wanted one that was measured at once"
        )
    if other.incomplete is None and (reason := misdescribed(other) or unsound(other)) is not None:
        raise ComparisonError(f"got an incumbent's report that is none of ours: {reason}")


def _short(value: object) -> str:
    if value is None:
        return "unknown"
    return value[:12] if isinstance(value, str) else str(value)
