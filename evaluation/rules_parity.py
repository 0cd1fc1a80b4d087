"""Parity rules: does speculation leave the text alone?

A lossless sampler says what plain decoding says, so a difference is the serving path's fault and
never the draft's. Asked in this order, and the first that answers decides: is it the same text;
does it first differ where rounding decides; is it no further from plain decoding's text than plain
decoding's own answers are from each other, and no further from the references than plain's. What
passes greedily by one of the latter two has to part no more than plain's own do (parting.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from evaluation.completeness import CANDIDATE, PLAIN
from evaluation.limits import above, signed
from evaluation.parting import ALONE, by_prompt, held
from evaluation.policy import Policy
from evaluation.report import Report, RequestFigures
from evaluation.rules_drawn import drawn
from evaluation.samples import ACCEPTANCE, SPEED
from evaluation.statistics import mean_difference
from evaluation.texts import plain_again
from speculation.records import Finding, Phase

RULE = "parity"
AS_SERVED = "parity_as_served"


def parity(report: Report, policy: Policy) -> Iterator[Finding]:
    """One temperature after the other: greedy and drawn texts have different baselines."""
    for temperature in report.conditions.temperatures:
        judged = drawn if temperature > 0 else _at
        yield from judged(report, policy, temperature)
    if 0 in report.conditions.temperatures:
        yield _as_served(report, policy, 0.0)
    if warm := [f"{t:g}" for t in report.conditions.temperatures if t > 0]:
        yield Finding(
            f"{AS_SERVED}_not_judged",
            Phase.PASS,
            f"at temperature {', '.join(warm)} the timed answers are other draws than those they "
            "would be compared with: what speculation does to texts there is told by the "
            "acceptance runs only, at a fixed K",
        )


def _at(report: Report, policy: Policy, temperature: float) -> Iterator[Finding]:
    """Greedy texts: a temperature of 0 alone. Those that are drawn are for rules_drawn.py."""
    rule = _named(RULE, report, temperature)
    compared = [r for r in report.of(CANDIDATE, temperature=temperature) if r.parity is not None]
    n = len(report.prompts)
    if len(compared) < n:
        yield Finding(
            rule,
            Phase.INCONCLUSIVE,
            f"{len(compared)} of {n} answers were compared with plain decoding's",
        )
        return
    equal = sum(_equal(request) for request in compared)
    if equal == n:
        yield Finding(rule, Phase.PASS, f"all {n} answers are plain decoding's, token by token")
        return
    apart = [r for r in compared if not _equal(r) and not _rounding(r, policy)]
    if not apart:
        widest = max(r.parity.gap or 0.0 for r in compared if r.parity is not None)
        found = Finding(
            rule,
            Phase.PASS,
            f"{equal} of {n} answers are plain decoding's; the others first differ where plain "
            f"decoding itself hardly preferred its token (by {widest:.2f} nats at most, "
            f"{policy.parity_gap:g} may be rounding)",
        )
        found = held(found, compared, plain_again(report, temperature), policy)
        yield found if found.phase is Phase.PASS else _add_one(found, report)
        return
    leaves = _leaving(apart, n)
    for found in (
        _against_plain(report, policy, temperature, compared, rule, leaves),
        *_against_references(report, policy, temperature, compared, leaves),
    ):
        yield _blamed(found)


def _as_served(report: Report, policy: Policy, temperature: float) -> Finding:
    """The same of the timed answers: streamed, K as the server adapts it, at each load.

    What `parity` compares is asked with log-probabilities at a fixed K, which no user does.
    """
    rule = _named(AS_SERVED, report, temperature)
    timed = report.of(CANDIDATE, SPEED, temperature=temperature)
    compared = [r for r in timed if r.parity is not None]
    n = len(timed)
    if not n or len(compared) < n:
        why = "no answer was timed" if not n else "measured by an earlier version: measure again"
        return Finding(rule, Phase.INCONCLUSIVE, f"the answers as served are not compared: {why}")
    equal = sum(_equal(request) for request in compared)
    told = f"{equal} of {n} answers as served (streamed, K adapted) are plain decoding's"
    if equal == n:
        return Finding(rule, Phase.PASS, told)
    apart = [r for r in compared if not _equal(r) and not _rounding(r, policy)]
    itself = report.of(PLAIN, SPEED, temperature=temperature)
    if not apart:
        found = Finding(rule, Phase.PASS, f"{told}; the others part where rounding decides")
        return held(found, compared, itself, policy)
    interval = by_prompt(compared, itself, policy)
    told = (
        f"{told}; {_leaving(apart, n)}ROUGE-L to plain decoding's at the same load less that "
        f"of plain decoding so timed to its batched self, prompt by prompt, is {signed(interval)}, "
        f"and may be {policy.rouge_l_margin:g} lower at most"
    )
    found = above(rule, told, interval, -policy.rouge_l_margin, policy)
    return _blamed(held(found, compared, itself, policy))


def _against_plain(
    report: Report,
    policy: Policy,
    temperature: float,
    compared: Sequence[RequestFigures],
    rule: str,
    leaves: str,
) -> Finding:
    """ROUGE-L beside what plain decoding scores against itself, alone against in a batch."""
    others = plain_again(report, temperature)
    baseline = {r.prompt: r.parity.rouge_l for r in others if r.parity is not None}
    interval = mean_difference(
        [r.parity.rouge_l for r in compared if r.parity is not None],
        [baseline.get(r.prompt, math.nan) for r in compared],
        alpha=policy.alpha,
    )
    told = (
        f"{leaves}ROUGE-L to plain decoding's text less that of plain decoding to itself is "
        f"{signed(interval)}, and may be {policy.rouge_l_margin:g} lower at most"
    )
    found = above(rule, told, interval, -policy.rouge_l_margin, policy)
    return held(_add_one(found, report), compared, others, policy)


def _against_references(
    report: Report,
    policy: Policy,
    temperature: float,
    compared: Sequence[RequestFigures],
    leaves: str,
) -> Iterator[Finding]:
    """Both against the references, paired by prompt, where there are any."""
    plain = {
        r.prompt: r.rouge_l_reference
        for r in report.of(PLAIN, ACCEPTANCE, temperature=temperature)
        if r.rouge_l_reference is not None
    }
    both = [r for r in compared if r.rouge_l_reference is not None and r.prompt in plain]
    if not both:
        return
    interval = mean_difference(
        [_score(r.rouge_l_reference) - _score(plain[r.prompt]) for r in both],
        [0.0] * len(both),
        alpha=policy.alpha,
    )
    told = (
        f"{leaves}ROUGE-L to the {len(both)} references less plain decoding's, prompt by prompt, "
        f"is {signed(interval)}, and may be {policy.rouge_l_margin:g} lower at most"
    )
    rule = _named(f"{RULE}_references", report, temperature)
    yield above(rule, told, interval, -policy.rouge_l_margin, policy)


def _leaving(apart: Sequence[RequestFigures], n: int) -> str:
    first = apart[0]
    place = None if first.parity is None else first.parity.position
    where = "somewhere" if place is None else f"at token {place}"
    return (
        f"{len(apart)} of {n} answers leave plain decoding's by more than rounding explains (the "
        f"first: prompt {first.prompt!r}, {where}); "
    )


def _blamed(finding: Finding) -> Finding:
    """Whose fault it would be. A PASS accuses nobody: what left plain's text is as near to it as
    plain's own."""
    if finding.phase is Phase.PASS:
        return finding
    said = f"{finding.statement}; this points to a serving bug and not to a bad draft"
    return replace(finding, statement=said)


def _add_one(finding: Finding, report: Report) -> Finding:
    """How to get the baseline of greedy texts, where the loads that were measured have none."""
    if 1 in report.conditions.speed_concurrencies:
        return finding
    return replace(finding, statement=f"{finding.statement}{ALONE}")


def _equal(request: RequestFigures) -> bool:
    return request.parity is not None and request.parity.equal


def _rounding(request: RequestFigures, policy: Policy) -> bool:
    """Whether plain decoding hardly preferred its own token where the two first differ."""
    gap = None if request.parity is None else request.parity.gap
    return gap is not None and gap <= policy.parity_gap


def _score(value: float | None) -> float:
    return math.nan if value is None else value


def _named(rule: str, report: Report, temperature: float) -> str:
    several = len(report.conditions.temperatures) > 1
    return f"{rule} at temperature {temperature:g}" if several else rule
