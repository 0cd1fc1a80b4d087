"""Slice rules: each task, language, context length, adapter and temperature by itself, so that a
good average cannot hide a draft that is dead on one of them.

PASS needs every judged slice non-inferior, each at alpha: to be wrong about the whole, one has to
be wrong about the slice that is truly bad (intersection-union; Berger, Multiparameter Hypothesis
Testing and Acceptance Sampling, Technometrics 24, 1982). To say of one among many that it is worse
is to pick it out after looking, so that statement is held to Holm over all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from evaluation.completeness import CANDIDATE, INCUMBENT
from evaluation.limits import above, plainly, signed
from evaluation.policy import Policy
from evaluation.report import Report
from evaluation.rules_acceptance import accepted, counts, difference, share
from evaluation.slicing import Place, slices
from evaluation.statistics import holm, p_below
from speculation.records import Finding, Phase

OTHER = "other"
RULE = "slice "


@dataclass(frozen=True, slots=True)
class Sliced:
    """Which slices are judged by themselves and which are too small for it."""

    judged: Mapping[str, frozenset[Place]]  # `other` among them where what is small is enough
    small: Mapping[str, int]  # prompts of each that is not judged by itself


def sliced(report: Report, policy: Policy) -> Sliced:
    """The slices of a report by the policy's minimum, counted in prompts: those are the units."""
    judged: dict[str, frozenset[Place]] = {}
    small: dict[str, int] = {}
    pooled: set[Place] = set()
    for name, members in slices(report).items():
        if (size := _prompts(members)) >= policy.slice_minimum:
            judged[name] = members
        else:
            small[name] = size
            pooled |= members
    if _prompts(pooled) >= policy.slice_minimum:
        judged[OTHER] = frozenset(pooled)
    return Sliced(judged, small)


def by_slice(report: Report, policy: Policy) -> Iterator[Finding]:
    found = sliced(report, policy)
    findings = [_one(report, policy, name, each) for name, each in found.judged.items()]
    yield from _held_to_holm(findings, policy)
    yield from _later(report, policy, found)
    if found.small:
        pooled = f"; judged together as `{OTHER}`" if OTHER in found.judged else ""
        listed = ", ".join(f"{name} ({size})" for name, size in found.small.items())
        yield Finding(
            "slices_not_judged",
            Phase.PASS,
            f"fewer than {policy.slice_minimum} prompts, too few to judge by themselves: "
            f"{listed}{pooled}",
        )


def _later(report: Report, policy: Policy, found: Sliced) -> Iterator[Finding]:
    """What is too small at this look, and will not be at the last one, is not waved through now."""
    if report.looks is None or report.looks.last:
        return
    growth = report.looks.planned[-1] / report.looks.planned[report.looks.number - 1]
    for name, size in found.small.items():
        if size * growth >= policy.slice_minimum:
            yield Finding(
                RULE + name,
                Phase.INCONCLUSIVE,
                f"on {name} there are {size} prompts so far: judged by itself at a later look, "
                f"from {policy.slice_minimum} on",
                more=policy.slice_minimum - size,
            )


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
            f"on {name} the target kept {plainly(interval)} of the tokens it judged, and it has to "
            f"be above {limit:g}"
        )
    return above(RULE + name, told, interval, limit, policy, unit=f"prompts of {name}")


def _held_to_holm(findings: list[Finding], policy: Policy) -> Iterator[Finding]:
    """Only what is worse after Holm's correction is said to be worse."""
    p_values = [
        1.0
        if f.interval is None or f.threshold is None
        else p_below(f.interval, f.threshold, alpha=policy.alpha)
        for f in findings
    ]
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


def _prompts(members: frozenset[Place] | set[Place]) -> int:
    return len({prompt for prompt, _ in members})
