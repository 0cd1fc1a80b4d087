"""Slice rules: each task, language, context length, adapter and temperature by itself, so that a
good average cannot hide a draft that is dead on one of them.

PASS needs every judged slice non-inferior, each at alpha: to be wrong about the whole, one has to
be wrong about the slice that is truly bad (intersection-union; Berger, Multiparameter Hypothesis
Testing and Acceptance Sampling, Technometrics 24, 1982). To say of one among many that it is worse
is to pick it out after looking, so that statement is held to Holm over all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from evaluation.completeness import CANDIDATE, INCUMBENT
from evaluation.limits import above, plainly, possible, signed
from evaluation.policy import Policy
from evaluation.report import Report
from evaluation.rules_acceptance import accepted, counts, difference, share
from evaluation.slicing import CONTEXT, Place, ahead, slices
from evaluation.statistics import holm, p_below
from speculation.records import Finding, Phase

OTHER = "other"
RULE = "slice "
SMALL_MINIMUM = 8  # prompts of which a share's spread is told at all, for what is beyond doubt


@dataclass(frozen=True, slots=True)
class Sliced:
    """Which slices are judged by themselves and which are too small for it."""

    judged: Mapping[str, frozenset[Place]]  # `other` among them where what is small is enough
    small: Mapping[str, int]  # prompts of each that is not judged by itself
    pooled: int  # prompts of all of these


def sliced(report: Report, policy: Policy) -> Sliced:
    """The slices of a report by the policy's minimum, counted in prompts: those are the units."""
    return _by_size(slices(report), policy)


def _by_size(found: Mapping[str, frozenset[Place]], policy: Policy) -> Sliced:
    judged: dict[str, frozenset[Place]] = {}
    small: dict[str, int] = {}
    pooled: set[Place] = set()
    for name, members in found.items():
        if (size := _prompts(members)) >= policy.slice_minimum:
            judged[name] = members
        else:
            small[name] = size
            pooled |= members
    if _prompts(pooled) >= policy.slice_minimum:
        judged[OTHER] = frozenset(pooled)
    return Sliced(judged, small, _prompts(pooled))


def by_slice(report: Report, policy: Policy) -> Iterator[Finding]:
    found = sliced(report, policy)
    findings = [_one(report, policy, name, each) for name, each in found.judged.items()]
    yield from _held_to_holm(findings, policy)
    later = list(_later(report, policy, found))
    yield from later
    if found.small:
        members = slices(report)
        told = {name: _one(report, policy, name, members[name]) for name in found.small}
        enough = [told[name] for name, size in found.small.items() if size >= SMALL_MINIMUM]
        met = {finding.rule for finding in later}
        yield from (f for f in _doubtless(findings, enough, found, policy) if f.rule not in met)
        pooled = f"; judged together as `{OTHER}`" if OTHER in found.judged else ""
        listed = ", ".join(
            f"{name} ({size}) {_shares(report, members[name])}"
            for name, size in found.small.items()
        )
        yield Finding(
            "slices_not_judged",
            Phase.PASS,
            f"fewer than {policy.slice_minimum} prompts, too few to judge by themselves, with the "
            f"share of the draft's tokens that the target kept: {listed}{pooled}",
        )


def _doubtless(
    judged: list[Finding], small: list[Finding], found: Sliced, policy: Policy
) -> Iterator[Finding]:
    """What is too small to be judged and worse all the same, after Holm over all: not waved
    through, and not rejected for so few prompts."""
    p_values = [_p_worse(finding, policy) for finding in (*judged, *small)]
    for finding, adjusted in zip(small, holm(p_values)[len(judged) :], strict=True):
        if finding.phase is Phase.FAIL and adjusted <= policy.alpha:
            size = found.small[finding.rule.removeprefix(RULE)]
            yield replace(
                finding,
                phase=Phase.INCONCLUSIVE,
                statement=f"{finding.statement}; it is worse there (p = {adjusted:.2g} after Holm "
                f"over {len(p_values)} slices), though only {size} prompts say so: measure more "
                "of it",
                more=policy.slice_minimum - size,
            )


def _shares(report: Report, members: frozenset[Place]) -> str:
    ours = share(counts(report, CANDIDATE, members))
    if INCUMBENT not in report.arms:
        return ours
    return f"{ours} against {share(counts(report, INCUMBENT, members))} of the serving draft's"


def _later(report: Report, policy: Policy, found: Sliced) -> Iterator[Finding]:
    """What the last look will judge by itself, or hold to be beyond doubt, and this one cannot is
    not waved through now, were there not one prompt of it yet."""
    looks = report.looks
    if looks is None or looks.last:
        return
    if not looks.strata:
        yield Finding(
            "slices_ahead",
            Phase.INCONCLUSIVE,
            "this look's report does not say what kinds of prompts are still to come: only all "
            f"{looks.planned[-1]} prompts can pass",
        )
        return
    growth = looks.planned[-1] / looks.planned[looks.number - 1]
    at_the_end = _by_size(ahead(report), policy)
    coming = dict.fromkeys(at_the_end.judged, policy.slice_minimum)
    ends = dict(at_the_end.small)
    for name, size in found.small.items():
        if name.startswith(CONTEXT):  # lengths ahead are estimates, and those seen are none
            ends[name] = max(ends.get(name, 0), math.ceil(size * growth))
    for name, size in ends.items():
        if size >= policy.slice_minimum:
            coming[name] = policy.slice_minimum
        elif size >= SMALL_MINIMUM:  # what is beyond doubt of it will be told then, and so now
            coming.setdefault(name, SMALL_MINIMUM)
    for name, least in coming.items():
        size = found.pooled if name == OTHER else found.small.get(name, 0)
        if name not in found.judged and size < least:
            yield Finding(
                RULE + name,
                Phase.INCONCLUSIVE,
                f"on {name} there are {size} prompts so far: "
                + (
                    "judged by itself"
                    if least == policy.slice_minimum
                    else "told whether it is dead"
                )
                + f" at a later look, from {least} on",
                more=least - size,
            )


def holds(report: Report, policy: Policy, prompts: frozenset[str]) -> bool:
    """Whether the rule of a slice passes on these prompts together."""
    places = frozenset((p, t) for p in prompts for t in report.conditions.temperatures)
    return _one(report, policy, "these", places).phase is Phase.PASS


def _one(report: Report, policy: Policy, name: str, members: frozenset[Place]) -> Finding:
    ours = counts(report, CANDIDATE, members)
    if INCUMBENT in report.arms:
        theirs = counts(report, INCUMBENT, members)
        interval, limit = difference(ours, theirs, policy.alpha), -policy.slice_margin
        told = (
            f"on {name} the target kept {share(ours)} of the new draft's tokens and "
            f"{share(theirs)} of the serving draft's, a difference of {signed(interval)}, at most "
            f"{policy.slice_margin:g} worse is allowed"
        )
    else:
        interval = accepted(ours, policy.alpha)
        limit = max(0.0, policy.acceptance_floor - policy.slice_margin)
        told = (
            f"on {name} the target kept {plainly(possible(interval))} of the tokens it judged, and "
            f"it has to be above {limit:g}"
        )
    return above(RULE + name, told, interval, limit, policy, unit=f"prompts of {name}")


def _held_to_holm(findings: list[Finding], policy: Policy) -> Iterator[Finding]:
    """Only what is worse after Holm's correction is said to be worse."""
    p_values = [_p_worse(finding, policy) for finding in findings]
    for finding, adjusted in zip(findings, holm(p_values), strict=True):
        if finding.phase is not Phase.FAIL:
            yield finding
        elif adjusted <= policy.alpha:
            yield replace(
                finding,
                statement=f"{finding.statement}; this slice is worse (p = {adjusted:.2g} after "
                f"Holm over {len(findings)} slices)",
            )
        else:
            yield replace(
                finding,
                phase=Phase.INCONCLUSIVE,
                statement=f"{finding.statement}; it looks worse, but among {len(findings)} slices "
                f"one may by chance (p = {adjusted:.2g} after Holm): measure more of it",
            )


def _p_worse(finding: Finding, policy: Policy) -> float:
    if finding.interval is None or finding.threshold is None:
        return 1.0
    return p_below(finding.interval, finding.threshold, alpha=policy.alpha)


def _prompts(members: frozenset[Place] | set[Place]) -> int:
    return len({prompt for prompt, _ in members})
