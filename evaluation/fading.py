"""Whether an arm's gain over plain decoding fades while its speed is measured.

Plain decoding tells of the machine (slowing.py) and nothing of what only drafts go through: a path
that leaks, or is throttled, midway makes an average of two servers, of which the later one serves.
So each arm's blocks are held against plain's of the same number: of the ratio of tokens a second,
the median of the later half lies below that of the earlier half by more than a factor, and by a
rank test that is no chance. The first quarter of the earlier half, in which plain decoding may warm
up and K is still learnt, is left out, and medians bear more of it; what grows faster never fades.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from scipy import stats

from evaluation.report import Report
from evaluation.slowing import CHANCE, FACTOR, LEAST_BLOCKS, LEAST_SECONDS
from evaluation.speed import PLAIN, block_table

WARMING = 4  # a half's part that is left out at the beginning


def faded(report: Report) -> Iterator[tuple[str, int]]:
    """Why an arm's speed is not one figure, and at how many requests at once; mostly nothing."""
    conditions = report.conditions
    for arm in (arm for arm in report.arms if arm != PLAIN):
        for at_once in conditions.speed_concurrencies:
            for temperature in conditions.temperatures:
                if reason := _of(report, arm, at_once, temperature):
                    yield reason, at_once


def _of(report: Report, arm: str, at_once: int, temperature: float) -> str | None:
    ours, plain = (
        block_table(report, name, at_once, temperature=temperature) for name in (arm, PLAIN)
    )
    if ours.shape != plain.shape or len(ours) < LEAST_BLOCKS:
        return None
    timed = (ours[:, :2] > 0).all(axis=1) & (plain[:, :2] > 0).all(axis=1)
    ours, plain = ours[timed], plain[timed]
    if len(ours) < LEAST_BLOCKS or min(median(ours[:, 1]), median(plain[:, 1])) < LEAST_SECONDS:
        return None
    gains = list((ours[:, 0] / ours[:, 1]) / (plain[:, 0] / plain[:, 1]))
    half = len(gains) // 2
    earlier, later = gains[half // WARMING : half], gains[half:]
    before, after = median(earlier), median(later)
    if after * FACTOR >= before:
        return None
    if stats.mannwhitneyu(later, earlier, alternative="less").pvalue > CHANCE:
        return None
    return (
        f"the gain of {arm} faded while it was measured: {before:.2f} times plain decoding's "
        f"tokens a second in the earlier half of its blocks and {after:.2f} times in the later "
        f"(medians), more than {FACTOR:g} times fewer: its speed is not one figure; see what "
        "becomes slow on the draft's path and measure again"
    )
