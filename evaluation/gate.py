"""Judges a report by a policy: PASS, FAIL or INCONCLUSIVE, with a sentence for each rule.

Pure: figures in, verdict out; no clock, no file, no network. Every rule is tested at the policy's
alpha and PASS needs them all, so no correction for their number is due (intersection-union).
What cannot be told from the data is INCONCLUSIVE, never PASS.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from evaluation.completeness import CANDIDATE, INCUMBENT, NGRAM, PLAIN, unmeasurable
from evaluation.limits import above, below, plainly, signed
from evaluation.policy import Policy
from evaluation.report import Report
from evaluation.slicing import Place, slices
from evaluation.speed import block_table
from evaluation.statistics import (
    mean_difference,
    ratio,
    ratio_difference,
    ratio_of_ratios,
)
from speculation.records import Counts, Finding, Interval, Phase, Verdict, pool


def judge(report: Report, policy: Policy) -> Verdict:
    """What `policy` says of the candidate that `report` measured."""
    measured = _measured(report, policy)
    if measured.phase is not Phase.PASS:
        return Verdict.of([measured])
    return Verdict.of([measured, *_rules(report, policy)])


def _rules(report: Report, policy: Policy) -> Iterator[Finding]:
    yield _against_incumbent(report, policy)
    yield _floor(report, policy)
    yield _against_ngram(report, policy)
    yield from _slices(report, policy)
    yield _speed(report, policy)
    yield _parity(report, policy)


def _measured(report: Report, policy: Policy) -> Finding:
    """Whether there is anything to judge: complete, consistent and enough."""
    reason = unmeasurable(report, policy)
    if reason is not None:
        return Finding("measured", Phase.INCONCLUSIVE, f"nothing can be concluded: {reason}")
    n = len(report.prompts)
    arms = ", ".join(report.arms)
    return Finding(
        "measured",
        Phase.PASS,
        f"{arms} each answered the same {n} prompts on one release, drafting "
        f"{report.conditions.draft_len} tokens a round",
    )


def _against_incumbent(report: Report, policy: Policy) -> Finding:
    rule, margin = "acceptance_over_incumbent", policy.acceptance_margin
    if INCUMBENT not in report.arms:
        return Finding(
            rule,
            Phase.PASS,
            "no draft serves this release yet, so there is none to compare with: the floor, the "
            "free n-gram draft and plain decoding judge alone",
        )
    ours, theirs = _counts(report, CANDIDATE), _counts(report, INCUMBENT)
    interval = _difference(ours, theirs, policy.alpha)
    told = (
        f"of the new draft's tokens that the target judged it kept {_share(ours)}, of the serving "
        f"draft's {_share(theirs)}: a difference of {signed(interval)}, and it may be "
        f"at most {margin:g} worse"
    )
    return above(rule, told, interval, -margin, policy)


def _floor(report: Report, policy: Policy) -> Finding:
    interval = _acceptance(_counts(report, CANDIDATE), policy.alpha)
    told = (
        f"the target kept {plainly(interval)} of the tokens it judged, and below "
        f"{policy.acceptance_floor:g} a draft is not worth its memory"
    )
    return above("acceptance_floor", told, interval, policy.acceptance_floor, policy)


def _against_ngram(report: Report, policy: Policy) -> Finding:
    rule = "forwards_over_ngram"
    if report.conditions.pairs[CANDIDATE] == report.conditions.pairs[NGRAM]:
        return Finding(
            rule, Phase.PASS, "the candidate is the n-gram draft itself, which costs no memory"
        )
    ours, theirs = _counts(report, CANDIDATE), _counts(report, NGRAM)
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


def _speed(report: Report, policy: Policy) -> Finding:
    ours = block_table(report, CANDIDATE)[:, :2].T
    plain = block_table(report, PLAIN)[:, :2].T
    interval = None
    if ours.shape == plain.shape:
        interval = ratio_of_ratios(*ours, *plain, alpha=policy.alpha)
    told = (
        f"one request at a time, from question to answer, the new draft is {plainly(interval)} "
        f"times as fast as decoding without a draft, and it has to be above "
        f"{policy.speed_over_plain:g}"
    )
    return above(
        "speed_over_plain",
        told,
        interval,
        policy.speed_over_plain,
        policy,
        log=True,
        each=report.conditions.block_prompts,
        unit="prompts in the speed runs",
    )


def _slices(report: Report, policy: Policy) -> Iterator[Finding]:
    """Each task and language by itself, so that a good average cannot hide a dead one."""
    small = []
    for name, members in slices(report).items():
        if len(members) < policy.slice_minimum:
            small.append(f"{name} ({len(members)})")
            continue
        ours = _counts(report, CANDIDATE, members)
        if INCUMBENT in report.arms:
            theirs = _counts(report, INCUMBENT, members)
            interval, limit = _difference(ours, theirs, policy.alpha), -policy.slice_margin
            told = (
                f"{name}: kept {_share(ours)} of the new draft's tokens, {_share(theirs)} of the "
                f"serving draft's, a difference of {signed(interval)}, at most "
                f"{policy.slice_margin:g} worse is allowed"
            )
        else:
            interval = _acceptance(ours, policy.alpha)
            limit = max(0.0, policy.acceptance_floor - policy.slice_margin)
            told = f"{name}: kept {plainly(interval)} of the new draft's tokens, floor {limit:g}"
        yield above(f"slice {name}", told, interval, limit, policy, unit=f"prompts of {name}")
    if small:
        yield Finding(
            "slices_not_judged",
            Phase.PASS,
            f"too few requests to judge by themselves: {', '.join(small)}",
        )


def _parity(report: Report, policy: Policy) -> Finding:
    """Does speculation leave the text alone? In this order: the same text; texts that part only
    where rounding decides; texts no further from plain's than plain's own are from each other."""
    rule, margin = "parity", policy.rouge_l_margin
    compared = [(r.prompt, r.parity) for r in report.of(CANDIDATE) if r.parity is not None]
    if len(compared) < len(report.prompts):
        return Finding(
            rule,
            Phase.INCONCLUSIVE,
            f"{len(compared)} of {len(report.prompts)} answers were compared with plain decoding's",
        )
    n, equal = len(compared), sum(parity.equal for _, parity in compared)
    greedy = report.conditions.temperatures == (0.0,)
    if equal == n:
        return Finding(rule, Phase.PASS, f"all {n} answers are plain decoding's, token by token")
    apart = [
        (prompt, parity)
        for prompt, parity in compared
        if not parity.equal and (parity.gap is None or parity.gap > policy.parity_gap)
    ]
    if greedy and not apart:
        widest = max(parity.gap or 0.0 for _, parity in compared)
        return Finding(
            rule,
            Phase.PASS,
            f"{equal} of {n} answers are plain decoding's; the others first differ where plain "
            f"decoding itself hardly preferred its token (by {widest:.2f} nats at most, "
            f"{policy.parity_gap:g} may be rounding)",
        )
    baseline = {
        r.prompt: r.parity.rouge_l
        for r in report.of(PLAIN, "speed" if greedy else "again")
        if r.parity is not None
    }
    interval = mean_difference(
        [parity.rouge_l for _, parity in compared],
        [baseline.get(prompt, math.nan) for prompt, _ in compared],
        alpha=policy.alpha,
    )
    told = (
        f"ROUGE-L to plain decoding's text less that of plain decoding to itself is "
        f"{signed(interval)}, and may be {margin:g} lower at most"
    )
    if greedy:
        prompt, parity = apart[0]
        where = "somewhere" if parity.position is None else f"at token {parity.position}"
        told = (
            f"{len(apart)} of {n} answers leave plain decoding's where rounding cannot explain it "
            f"(the first: prompt {prompt!r}, {where}), which points to a serving bug and not to "
            f"a bad draft; {told}"
        )
    return above(rule, told, interval, -margin, policy)


def _counts(report: Report, arm: str, members: frozenset[Place] | None = None) -> list[Counts]:
    """Of one arm, a prompt's at every temperature together, in the order of the prompts: they are
    the clusters, and so arms are paired."""
    found: dict[str, list[Counts]] = {prompt.id: [] for prompt in report.prompts}
    for request in report.of(arm):
        if members is None or (request.prompt, request.temperature) in members:
            found[request.prompt].append(request.counts)
    return [pool(counts) for counts in found.values() if counts]


def _acceptance(counts: Sequence[Counts], alpha: float) -> Interval | None:
    return ratio([c.accepted for c in counts], [c.judged for c in counts], alpha=alpha)


def _difference(ours: Sequence[Counts], theirs: Sequence[Counts], alpha: float) -> Interval | None:
    return ratio_difference(
        [c.accepted for c in ours],
        [c.judged for c in ours],
        [c.accepted for c in theirs],
        [c.judged for c in theirs],
        alpha=alpha,
    )


def _share(counts: Sequence[Counts]) -> str:
    judged = sum(c.judged for c in counts)
    return f"{sum(c.accepted for c in counts) / judged:.3f}" if judged else "nothing (none judged)"


def _per_hundred(counts: Sequence[Counts]) -> str:
    emitted = sum(c.emitted for c in counts)
    return f"{100 * sum(c.forwards for c in counts) / emitted:.0f}" if emitted else "unknown"
