"""Parity where tokens are drawn: does speculation leave the law of the text alone?

A request without a seed, as most are, draws anew, so that no answer need be another's: what has to
be the same is how they spread. Asked three ways, each against how far two answers of plain decoding
with different seeds are from each other, prompt by prompt: how far the draft's are from plain's,
how far they are from each other, and how far those with plain's seeds are, since a seed takes
another path through the server. Nearer is as wrong as farther: a path that ignores the temperature
is nearer to plain decoding than plain decoding is to itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from evaluation.completeness import CANDIDATE, PLAIN
from evaluation.limits import above, signed, within
from evaluation.policy import Policy
from evaluation.report import Report, RequestFigures
from evaluation.samples import ACCEPTANCE, AGAIN, SEEDED
from evaluation.statistics import mean_difference
from speculation.records import Finding, Phase

DRAWN = "parity_drawn"
ALIKE = "they vary less than plain decoding's, as where a path ignores the temperature"
ASKED = {  # a rule's name, the run that it judges, what is held against plain's, and what is wrong
    DRAWN: (
        ACCEPTANCE,
        "answers drawn with the draft and plain decoding's",
        "they say something else than plain decoding's",
    ),
    f"{DRAWN}_spread": (
        AGAIN,
        "two answers drawn with the draft to one prompt",
        "they vary more than plain decoding's",
    ),
    f"{DRAWN}_seeded": (
        SEEDED,
        "answers drawn with the draft under a seed, and plain decoding's under another,",
        "they say something else than plain decoding's",
    ),
}


def drawn(report: Report, policy: Policy, temperature: float) -> Iterator[Finding]:
    """The candidate's texts at one temperature above 0."""
    several = len(report.conditions.temperatures) > 1
    at = f" at temperature {temperature:g}" if several else ""
    itself = _scores(report.of(PLAIN, AGAIN, temperature=temperature))
    whole = len(report.prompts)
    if not report.of(CANDIDATE, AGAIN, temperature=temperature):
        yield Finding(
            f"{DRAWN}{at}",
            Phase.INCONCLUSIVE,
            "nobody drew with the draft as users do who send no seed: measured by an earlier "
            "version, measure again",
        )
        return
    for rule, (run, what, farther) in ASKED.items():
        ours = _scores(report.of(CANDIDATE, run, temperature=temperature))
        if min(len(ours), len(itself)) < whole:
            told = f"{len(ours)} and {len(itself)} of {whole} drawn answers were compared"
            yield Finding(f"{rule}{at}", Phase.INCONCLUSIVE, told)
            continue
        yield _law(f"{rule}{at}", what, farther, ours, itself, policy)
    yield from _references(report, policy, temperature, at)


def _law(
    rule: str,
    what: str,
    farther: str,
    ours: Mapping[str, float],
    itself: Mapping[str, float],
    policy: Policy,
) -> Finding:
    interval = mean_difference(
        list(ours.values()), [itself[prompt] for prompt in ours], alpha=policy.alpha
    )
    margin = policy.drawn_margin
    told = (
        f"{what} are {_mean(ours.values()):.3f} alike (ROUGE-L, 1 is the same text), two of plain "
        f"decoding's {_mean(itself.values()):.3f}: a difference of {signed(interval)}, which may "
        f"be {margin:g} either way"
    )
    if interval is not None and interval.low > margin:
        told += f"; {ALIKE}: a fault of the server and not of the draft"
    if interval is not None and interval.high < -margin:
        told += f"; {farther}: a fault of the server and not of the draft"
    return within(rule, told, interval, margin, policy)


def _references(report: Report, policy: Policy, temperature: float, at: str) -> Iterator[Finding]:
    """Where prompts have references: no further from them than plain decoding's two answers."""
    ours, theirs = (
        [
            {
                r.prompt: r.rouge_l_reference
                for r in report.of(arm, run, temperature=temperature)
                if r.rouge_l_reference is not None
            }
            for run in (ACCEPTANCE, AGAIN)
        ]
        for arm in (CANDIDATE, PLAIN)
    )
    prompts = [p for p in ours[0] if all(p in scores for scores in (ours[1], *theirs))]
    if not prompts:
        return
    interval = mean_difference(
        [
            _mean(scores[p] for scores in ours) - _mean(scores[p] for scores in theirs)
            for p in prompts
        ],
        [0.0] * len(prompts),
        alpha=policy.alpha,
    )
    told = (
        f"ROUGE-L of drawn answers to the {len(prompts)} references less plain decoding's, prompt "
        f"by prompt, is {signed(interval)}, and may be {policy.drawn_margin:g} lower at most"
    )
    yield above(f"{DRAWN}_references{at}", told, interval, -policy.drawn_margin, policy)


def _scores(requests: Sequence[RequestFigures]) -> dict[str, float]:
    return {r.prompt: r.parity.rouge_l for r in requests if r.parity is not None}


def _mean(scores: Iterable[float]) -> float:
    each = list(scores)
    return sum(each) / len(each) if each else math.nan
