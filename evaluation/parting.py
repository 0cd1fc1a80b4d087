"""Whether greedy answers part from plain decoding's more than plain decoding's own part from each
other.

Where two texts first differ a gap tells whether rounding may decide there; it cannot tell how often
rounding does, nor what became of the text. That only plain decoding alone beside plain decoding in
a batch tells: two other shapes of one computation, as a draft's is. An answer that rounding parts
early scores low and is right, so a low score is held against theirs and never against 1. Whatever
is surely more than theirs is no PASS; it is no FAIL either, since a shape of its own may round
oftener: float32, which hardly rounds, decides.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from scipy import stats

from evaluation.limits import known, signed
from evaluation.policy import Policy
from evaluation.report import RequestFigures
from evaluation.statistics import mean_difference
from speculation.records import Finding, Interval, Phase

SURELY_MORE = "surely more than plain decoding's own do"  # by it remedies.py knows what to do
ALONE = (
    "; plain decoding is held against itself only where speed was measured with one request at a "
    "time too: add 1 to the concurrencies of the speed runs"
)
Requests = Sequence[RequestFigures]


def held(finding: Finding, ours: Requests, itself: Requests, policy: Policy) -> Finding:
    """`finding`, which rounding let pass, unless what parts is surely more than plain's own."""
    if finding.phase is not Phase.PASS:
        return finding
    theirs = [request for request in itself if request.parity is not None]
    if not theirs:
        said = (
            f"{finding.statement}; but how often rounding parts plain decoding's own answers was "
            "not measured, and without it rounding explains anything"
        )
        return replace(finding, phase=Phase.INCONCLUSIVE, statement=said)
    said = oftener(ours, theirs, policy) or _lower(ours, theirs, policy)
    if not said:
        return finding
    return replace(
        finding,
        phase=Phase.INCONCLUSIVE,
        statement=f"{finding.statement}; but they part {said}",
        interval=None,  # which does not lie on a limit: more prompts decide nothing
        threshold=None,
    )


def oftener(ours: Requests, itself: Requests, policy: Policy) -> str:
    """That the share of prompts whose answers part is surely above plain's own; else empty.

    Fisher's exact test: a prompt that rounding parts in one shape it parts in another too, and of
    shares that go together it finds fewer different by chance than alpha.
    """
    (parted, n), (own, m) = _parted(ours), _parted(itself)
    chance = float(
        stats.fisher_exact([[parted, n - parted], [own, m - own]], alternative="greater").pvalue
    )
    if not chance <= policy.alpha:
        return ""
    return (
        f"{SURELY_MORE}: on {parted} of {n} prompts, and plain decoding's own on {own} of {m} "
        f"(Fisher's exact test, p = {chance:.2g})"
    )


def _lower(ours: Requests, itself: Requests, policy: Policy) -> str:
    """That the texts are surely further from plain decoding's than plain's own; else empty."""
    interval = by_prompt(ours, itself, policy)
    if not known(interval) or interval.high >= -policy.rouge_l_margin:
        return ""
    return (
        f"{SURELY_MORE}: ROUGE-L to plain decoding's text less that of plain decoding to itself is "
        f"{signed(interval)}, wholly below -{policy.rouge_l_margin:g}"
    )


def by_prompt(ours: Requests, itself: Requests, policy: Policy) -> Interval | None:
    """ROUGE-L to plain decoding's text less that of plain decoding to itself, by prompt."""
    first, second = _scores(ours), _scores(itself)
    return mean_difference(
        list(first.values()),
        [second.get(prompt, math.nan) for prompt in first],
        alpha=policy.alpha,
    )


def _parted(requests: Requests) -> tuple[int, int]:
    """Prompts with an answer that parts, of how many: one asked at several loads counts once."""
    prompts = {r.prompt for r in requests if r.parity is not None}
    parted = {r.prompt for r in requests if r.parity is not None and not r.parity.equal}
    return len(parted), len(prompts)


def _scores(requests: Requests) -> dict[str, float]:
    found: defaultdict[str, list[float]] = defaultdict(list)
    for request in requests:
        if request.parity is not None:
            found[request.prompt].append(request.parity.rouge_l)
    return {prompt: sum(each) / len(each) for prompt, each in found.items()}
