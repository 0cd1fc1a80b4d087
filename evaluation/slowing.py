"""Whether the endpoint slowed down while its speed was measured.

Plain decoding is the yardstick: it does the same from the first block to the last, so what changes
in its speed is the machine's or the server's doing. The rule: at each temperature and concurrency,
plain decoding's tokens a second over the later half of its blocks must not lie below those of the
earlier half by more than a factor. ABBA blocks cancel a drift; they do not cancel a machine that
is another one halfway. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from evaluation.samples import SPEED, Sample, SpeedBlock

PLAIN = "none"
FACTOR = 1.5  # blocks of two short answers differ by 1.2 on a quiet machine; throttling halves
LEAST_BLOCKS = 4  # two in a half: below it one slow block would be half of the evidence


def paces(
    blocks: Sequence[SpeedBlock], tokens: dict[tuple[float, int, int], int]
) -> dict[tuple[float, int], tuple[float, float]]:
    """Plain decoding's tokens a second in the earlier and the later half, by (temperature,
    concurrency). `tokens` of its blocks by (temperature, concurrency, block)."""
    found: dict[tuple[float, int], tuple[float, float]] = {}
    plain = [block for block in blocks if block.arm == PLAIN]
    for kind in dict.fromkeys((b.temperature, b.concurrency) for b in plain):
        these = sorted(
            (b for b in plain if (b.temperature, b.concurrency) == kind), key=lambda b: b.block
        )
        half = len(these) // 2
        if len(these) < LEAST_BLOCKS:
            continue
        rates = []
        for part in (these[:half], these[half:]):
            seconds = sum(block.seconds for block in part)
            said = sum(tokens.get((*kind, block.block), 0) for block in part)
            rates.append(said / seconds if seconds > 0 else 0.0)
        found[kind] = rates[0], rates[1]
    return found


def slowed(blocks: Sequence[SpeedBlock], samples: Sequence[Sample]) -> dict[tuple[float, int], str]:
    """Why speed cannot be told from these blocks, by (temperature, concurrency); mostly nothing."""
    tokens: dict[tuple[float, int, int], int] = {}
    for sample in samples:
        if (sample.run, sample.arm) == (SPEED, PLAIN):
            where = (sample.temperature, sample.concurrency, sample.block)
            tokens[where] = tokens.get(where, 0) + sample.answer.completion_tokens
    return {
        kind: f"the endpoint slowed down: at {kind[1]} at once plain decoding made {earlier:.1f} "
        f"tokens a second in the earlier half of its blocks and {later:.1f} in the later, more "
        f"than {FACTOR:g} times fewer; leave the machine alone and measure again"
        for kind, (earlier, later) in paces(blocks, tokens).items()
        if later * FACTOR < earlier
    }
