"""Rules that other systems judge by, so that the proof of ours can show what it tells apart.

None of them is used for anything else. Each does one thing that is commonly done and looks right;
proof.py says which of its cases must catch it. Knows reports; decides nothing that counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from evaluation.policy import Policy
from evaluation.report import Report
from evaluation.statistics import ratio_difference
from speculation.records import Counts, Phase

CONFIDENCE = 0.98  # as Kayenta's judge sets it, two-sided
EVERY = 5  # prompts from one naive look to the next


def fixed_threshold(policy: Policy, report: Report) -> Phase:
    """One mean against one number, here what the incumbent had less the margin; no noise at all.

    Where there is no data there is nothing to complain of.
    """
    ours, theirs = _means(_counts(report, "candidate")), _means(_counts(report, "incumbent"))
    limit = (np.mean(theirs) if theirs else math.nan) - policy.acceptance_margin
    return Phase.FAIL if ours and np.mean(ours) < limit else Phase.PASS


def token_level(policy: Policy, report: Report) -> Phase:
    """Every judged token a trial of its own, as if tokens of one request knew nothing of each
    other: the interval of two proportions, far too narrow."""
    shares, spreads = [], []
    for arm in ("candidate", "incumbent"):
        counts = _counts(report, arm)
        judged = sum(c.judged for c in counts)
        if not judged:
            return Phase.INCONCLUSIVE
        share = sum(c.accepted for c in counts) / judged
        shares.append(share)
        spreads.append(max(0.0, share * (1 - share)) / judged)
    reach = float(stats.norm.ppf(1 - policy.alpha)) * math.sqrt(sum(spreads))
    return _margin(shares[0] - shares[1], reach, policy.acceptance_margin)


def pooled_slices(policy: Policy, report: Report) -> Phase:
    """The right interval, of everything at once: no slice is looked at by itself."""
    ours, theirs = _counts(report, "candidate"), _counts(report, "incumbent")
    if len(ours) != len(theirs):
        return Phase.INCONCLUSIVE
    return _paired(policy, ours, theirs)


def mann_whitney(policy: Policy, report: Report) -> Phase:
    """Fails what is significantly worse and passes all else, for want of evidence as well.

    After Kayenta's canary judge: the Mann-Whitney test of two sets of requests that are not paired,
    and a metric that is neither high nor low, or has no data, does not hold anything back.
    """
    ours, theirs = _means(_counts(report, "candidate")), _means(_counts(report, "incumbent"))
    if not ours or not theirs:
        return Phase.PASS
    p_value = stats.mannwhitneyu(ours, theirs, alternative="less").pvalue
    return Phase.FAIL if p_value < (1 - CONFIDENCE) / 2 else Phase.PASS


def naive_peeking(policy: Policy, report: Report) -> Phase:
    """The right interval, looked at every few prompts until it is conclusive, as if each look were
    the only one."""
    ours, theirs = _counts(report, "candidate"), _counts(report, "incumbent")
    phase = Phase.INCONCLUSIVE
    for seen in range(policy.minimum_prompts, min(len(ours), len(theirs)) + 1, EVERY):
        phase = _paired(policy, ours[:seen], theirs[:seen])
        if phase is not Phase.INCONCLUSIVE:
            break
    return phase


def _paired(policy: Policy, ours: Sequence[Counts], theirs: Sequence[Counts]) -> Phase:
    interval = ratio_difference(
        [c.accepted for c in ours],
        [c.judged for c in ours],
        [c.accepted for c in theirs],
        [c.judged for c in theirs],
        alpha=policy.alpha,
    )
    if interval is None:
        return Phase.INCONCLUSIVE
    reach = (interval.high - interval.low) / 2
    return _margin(interval.estimate, reach, policy.acceptance_margin)


def _counts(report: Report, arm: str) -> list[Counts]:
    return [request.counts for request in report.of(arm)]


def _means(counts: Sequence[Counts]) -> list[float]:
    """Each request's own acceptance, of those that have one."""
    return [count.acceptance for count in counts if count.acceptance is not None]


def _margin(estimate: float, reach: float, margin: float) -> Phase:
    if estimate - reach > -margin:
        return Phase.PASS
    return Phase.FAIL if estimate + reach < -margin else Phase.INCONCLUSIVE
