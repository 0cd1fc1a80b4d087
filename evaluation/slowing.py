"""Whether the endpoint slowed down while its speed was measured.

Plain decoding is the yardstick: it does the same from the first block to the last, so what changes
in its speed is the machine's or the server's doing. The rule, at each temperature and concurrency:
of plain decoding's blocks, the median tokens a second of the later half lies below that of the
earlier half by more than a factor, and by a rank test that is no chance. Where batches are measured
one after the other the last one is held against all before it as well: of many batches a half
would hide it. ABBA blocks cancel a drift; they do not cancel a machine that is another one halfway.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from scipy import stats

from evaluation.samples import SPEED, Sample, SpeedBlock

PLAIN = "none"
FACTOR = 1.5  # blocks of two short answers differ by 1.2 on a quiet machine; throttling halves
LEAST_BLOCKS = 8  # of 4 against 4 the rank test's smallest p is 1/70; fewer cannot tell
CHANCE = 0.05
LEAST_SECONDS = (
    0.25  # of a block; what is over sooner tells the scheduler's mood, not the machine's
)


def paces(
    blocks: Sequence[SpeedBlock],
    tokens: dict[tuple[float, int, int], int],
    since: int | None = None,
) -> dict[tuple[float, int], tuple[list[float], list[float]]]:
    """Plain decoding's tokens a second, block by block, in the earlier and the later half, by
    (temperature, concurrency); or before the block `since` and from it on. `tokens` of its blocks
    by (temperature, concurrency, block)."""
    found: dict[tuple[float, int], tuple[list[float], list[float]]] = {}
    plain = [block for block in blocks if block.arm == PLAIN]
    for kind in dict.fromkeys((b.temperature, b.concurrency) for b in plain):
        these = sorted(
            (b for b in plain if (b.temperature, b.concurrency) == kind), key=lambda b: b.block
        )
        timed = [b for b in these if b.seconds > 0]
        rates = [tokens.get((*kind, b.block), 0) / b.seconds for b in timed]
        if not timed or median(b.seconds for b in timed) < LEAST_SECONDS:
            continue
        cut = len(rates) // 2 if since is None else sum(b.block < since for b in timed)
        if min(cut, len(rates) - cut) >= LEAST_BLOCKS // 2:
            found[kind] = rates[:cut], rates[cut:]
    return found


def slowed(
    blocks: Sequence[SpeedBlock], samples: Sequence[Sample], *, since: int | None = None
) -> dict[tuple[float, int], str]:
    """Why speed cannot be told from these blocks, by (temperature, concurrency); mostly nothing.
    `since`: the first block of the last batch, to be held against those before it; None: halves."""
    parts = ("the earlier half of its blocks", "the later")
    if since is not None:
        parts = ("the blocks before the last batch of prompts", "that batch's")
    tokens: dict[tuple[float, int, int], int] = {}
    for sample in samples:
        if (sample.run, sample.arm) == (SPEED, PLAIN):
            where = (sample.temperature, sample.concurrency, sample.block)
            tokens[where] = tokens.get(where, 0) + sample.answer.completion_tokens
    found = {}
    for kind, (earlier, later) in paces(blocks, tokens, since).items():
        before, after = median(earlier), median(later)
        if after * FACTOR >= before:
            continue
        chance = stats.mannwhitneyu(later, earlier, alternative="less").pvalue
        if chance <= CHANCE:
            found[kind] = (
                f"the endpoint slowed down: at {kind[1]} at once plain decoding made {before:.1f} "
                f"tokens a second in {parts[0]} and {after:.1f} in {parts[1]} (medians), more than "
                f"{FACTOR:g} times fewer; leave the machine alone and measure again"
            )
    return found
