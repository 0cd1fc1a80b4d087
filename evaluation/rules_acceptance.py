"""Acceptance rules: no worse than the incumbent, above a floor, better than the free n-gram draft.

All at one fixed K, paired by prompt; a prompt's answers at several temperatures are one cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evaluation.completeness import CANDIDATE, INCUMBENT, NGRAM
from evaluation.limits import above, below, plainly, possible, signed
from evaluation.policy import Policy
from evaluation.report import Report
from evaluation.slicing import Place
from evaluation.statistics import ratio, ratio_difference, ratio_of_ratios
from speculation.records import Counts, Finding, Interval, Phase, pool


def acceptance(report: Report, policy: Policy) -> Iterator[Finding]:
    yield _against_incumbent(report, policy)
    yield _floor(report, policy)
    yield _against_ngram(report, policy)


def _against_incumbent(report: Report, policy: Policy) -> Finding:
    rule, margin = "acceptance_over_incumbent", policy.acceptance_margin
    if INCUMBENT not in report.arms:
        return Finding(
            rule,
            Phase.PASS,
            "no draft serves this release yet, so there is none to compare with: the floor, the "
            "free n-gram draft and plain decoding judge alone",
        )
    ours, theirs = counts(report, CANDIDATE), counts(report, INCUMBENT)
    interval = difference(ours, theirs, policy.alpha)
    told = (
        f"of the new draft's tokens that the target judged it kept {share(ours)}, of the serving "
        f"draft's {share(theirs)}: a difference of {signed(interval)}, and it may be "
        f"at most {margin:g} worse"
    )
    return above(rule, told, interval, -margin, policy)


def _floor(report: Report, policy: Policy) -> Finding:
    interval = accepted(counts(report, CANDIDATE), policy.alpha)
    told = (
        f"the target kept {plainly(possible(interval))} of the tokens it judged, and below "
        f"{policy.acceptance_floor:g} a draft is not worth its memory"
    )
    return above("acceptance_floor", told, interval, policy.acceptance_floor, policy)


def _against_ngram(report: Report, policy: Policy) -> Finding:
    rule = "forwards_over_ngram"
    if report.conditions.pairs[CANDIDATE] == report.conditions.pairs[NGRAM]:
        return Finding(
            rule, Phase.PASS, "the candidate is the n-gram draft itself, which costs no memory"
        )
    ours, theirs = counts(report, CANDIDATE), counts(report, NGRAM)
    # Per token and not per request: where rounding parts the texts, their lengths differ too.
    interval = ratio_of_ratios(
        [c.forwards for c in ours],
        [c.emitted for c in ours],
        [c.forwards for c in theirs],
        [c.emitted for c in theirs],
        alpha=policy.alpha,
    )
    told = (
        f"for 100 tokens of answer the target runs {_per_hundred(ours)} times with the new draft, "
        f"{_per_hundred(theirs)} times with the free n-gram draft: {plainly(interval)} as often, "
        f"and it has to be below {policy.forwards_over_ngram:g} to be worth its memory"
    )
    return below(rule, told, interval, policy.forwards_over_ngram, policy)


def counts(report: Report, arm: str, members: frozenset[Place] | None = None) -> list[Counts]:
    """Of one arm, a prompt's at every temperature together, in the order of the prompts: they are
    the clusters, and so arms are paired."""
    found: dict[str, list[Counts]] = {prompt.id: [] for prompt in report.prompts}
    for request in report.of(arm):
        if members is None or (request.prompt, request.temperature) in members:
            found[request.prompt].append(request.counts)
    return [pool(each) for each in found.values() if each]


def accepted(of: Sequence[Counts], alpha: float) -> Interval | None:
    """alpha-hat."""
    return ratio([c.accepted for c in of], [c.judged for c in of], alpha=alpha)


def difference(ours: Sequence[Counts], theirs: Sequence[Counts], alpha: float) -> Interval | None:
    """One alpha-hat less another, paired by prompt."""
    return ratio_difference(
        [c.accepted for c in ours],
        [c.judged for c in ours],
        [c.accepted for c in theirs],
        [c.judged for c in theirs],
        alpha=alpha,
    )


def share(of: Sequence[Counts]) -> str:
    """alpha-hat for people."""
    judged = sum(c.judged for c in of)
    return f"{sum(c.accepted for c in of) / judged:.3f}" if judged else "nothing (none judged)"


def _per_hundred(of: Sequence[Counts]) -> str:
    emitted = sum(c.emitted for c in of)
    return f"{100 * sum(c.forwards for c in of) / emitted:.0f}" if emitted else "unknown"
