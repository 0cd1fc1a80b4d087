"""Judges a report by a policy: PASS, FAIL or INCONCLUSIVE, with a sentence for each rule.

Pure: figures in, verdict out; no clock, no file, no network. Every rule is tested at the policy's
alpha and PASS needs them all, so no correction for their number is due (intersection-union).
What cannot be told from the data is INCONCLUSIVE, never PASS. The rules are in rules_*.py, a file a
family; docs/gate.md explains each.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

from evaluation.capping import behind, buckets, good_to, longest, up_to
from evaluation.comparable import beside
from evaluation.completeness import INCUMBENT
from evaluation.policy import Policy
from evaluation.report import Report
from evaluation.rules_acceptance import acceptance
from evaluation.rules_evidence import evidence
from evaluation.rules_parity import parity
from evaluation.rules_slices import RULE, by_slice, holds
from evaluation.rules_speed import forgivable, speed
from evaluation.soundness import misdescribed
from evaluation.spending import at_look
from evaluation.version import code_version
from speculation.records import Basis, Finding, Phase, Verdict

CONTEXT = f"{RULE}context up to "


def judge(policy: Policy, report: Report, incumbent: Report | None = None) -> Verdict:
    """What `policy` says of the candidate that `report` measured.

    `incumbent` is the report of the draft that serves now, where it is not an arm of `report`.
    Raises ComparisonError, a ValueError, where the two were not measured alike.
    """
    if (reason := misdescribed(report)) is not None:
        said = f"nothing can be concluded: the report is none of ours: {reason}"
        nothing = Verdict.of([Finding("measured", Phase.INCONCLUSIVE, said)])
        return replace(nothing, basis=_basis(policy, policy, report, incumbent))
    applied = at_look(policy, report.looks)
    whole = report if incumbent is None else beside(report, incumbent)
    verdict = _verdict(whole, applied, policy.alpha)
    if verdict.phase is Phase.FAIL:
        verdict = _capped(whole, applied, policy.alpha, verdict)
    elif verdict.phase is Phase.PASS:
        verdict = _to_context(whole, applied, verdict)
    return replace(verdict, basis=_basis(policy, applied, report, incumbent))


def _verdict(report: Report, policy: Policy, alpha: float) -> Verdict:
    first = list(evidence(report, policy, alpha=alpha))
    if any(finding.phase is not Phase.PASS for finding in first):
        return Verdict.of(first)
    return Verdict.of([*first, *_forgiven(list(_rules(report, policy)), policy)])


def _rules(report: Report, policy: Policy) -> Iterator[Finding]:
    yield from acceptance(report, policy)
    yield from by_slice(report, policy)
    yield from speed(report, policy)
    yield from parity(report, policy)


def _forgiven(findings: Sequence[Finding], policy: Policy) -> Iterator[Finding]:
    """Latency rules that did not pass are excused, if there are no more than the policy allows of
    those that failed, and of those that stayed open."""
    allowed = {
        Phase.FAIL: ("failure_limit", policy.failure_limit),
        Phase.INCONCLUSIVE: ("inconclusive_limit", policy.inconclusive_limit),
    }
    met = [finding.phase for finding in findings if forgivable(finding)]
    for finding in findings:
        name, most = allowed.get(finding.phase, ("", 0))
        if name and forgivable(finding) and met.count(finding.phase) <= most:
            said = f"{finding.statement}; excused by the policy's {name} = {most}"
            yield replace(finding, excused=True, statement=said)
        else:
            yield finding


def _context(report: Report, policy: Policy) -> tuple[int, int | None]:
    """The bucket of length that enough prompts stand behind, and its longest request: what is
    longer was met too seldom to say that the draft is any good there."""
    most = behind(
        report,
        alone=policy.slice_minimum,
        least=policy.minimum_prompts,
        good=lambda ids: holds(report, policy, ids),
    )
    return most, longest(up_to(report, most))


def _to_context(report: Report, policy: Policy, verdict: Verdict) -> Verdict:
    """`verdict`, a PASS, with how far it reaches, and what was asked beyond."""
    most, context = _context(report, policy)
    beyond = sum(size for length, size in buckets(report).items() if length > most)
    if beyond:
        note = Finding(
            "context_not_judged",
            Phase.PASS,
            f"{beyond} of {len(report.prompts)} prompts are longer than {most} tokens, too few to "
            f"say how the draft is there: it may serve contexts of up to {context} tokens, and "
            "beyond them the server decodes without a draft",
        )
        verdict = Verdict.of([*verdict.findings, note])
    return replace(verdict, context_measured=context)


def _capped(report: Report, policy: Policy, alpha: float, verdict: Verdict) -> Verdict:
    """What fails only because of the longest contexts may serve up to there, where nothing serves
    beyond now; an incumbent that is better there would be lost, so then it stays rejected."""
    sizes = buckets(report)
    failed = {f.rule for f in verdict.findings if f.phase is Phase.FAIL}
    if len(sizes) < 2 or f"{CONTEXT}{list(sizes)[-1]}" not in failed:
        return verdict
    found = good_to(
        report, lambda part: _verdict(part, policy, alpha), minimum=policy.minimum_prompts
    )
    if found is None:
        return verdict
    _, context = _context(up_to(report, found[0]), policy)
    most, good = found
    beyond = [f for f in verdict.findings if f.phase is Phase.FAIL and f.rule.startswith(CONTEXT)]
    why = "; ".join(finding.statement for finding in beyond)
    if INCUMBENT in report.arms:
        note = Finding(
            "context_cap",
            Phase.FAIL,
            f"up to prompts of {most} tokens the new draft passes every rule, but beyond them the "
            f"serving draft would be lost: {why}",
        )
        return replace(Verdict.of([*verdict.findings, note]), context_measured=context)
    note = Finding(
        "context_cap",
        Phase.PASS,
        f"capped: it may serve contexts of up to {context} tokens, and beyond them the server "
        f"decodes without a draft, because it is too bad there ({why}); all else here is of the "
        f"{len(up_to(report, most).prompts)} prompts of up to {most} tokens",
    )
    return replace(Verdict.of([*good.findings, note]), context_measured=context)


def _basis(policy: Policy, applied: Policy, report: Report, incumbent: Report | None) -> Basis:
    limits = json.loads(json.dumps(asdict(policy)))  # lists, as it is when it was stored
    return Basis(
        report=_digest(report),
        incumbent=None if incumbent is None else _digest(incumbent),
        policy=hashlib.sha256(json.dumps(limits, sort_keys=True).encode()).hexdigest(),
        limits=limits,
        alpha=applied.alpha,
        prompts=len(report.prompts),
        code_version=code_version(),
    )


def _digest(report: Report) -> str:
    try:
        return report.digest
    except ValueError:  # NaN, which no stored report can hold
        return "none: it holds what is no number"
