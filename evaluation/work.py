"""What a measurement asks, and in which order.

Acceptance and again: every arm answers every prompt at every temperature, several at a time; again
is plain decoding with other seeds, the baseline of parity where tokens are drawn. Speed: blocks of
one arm at one concurrency, the order of the arms reversed from block to block (ABBA), so that a
machine that warms up or slows down favours no arm. Pure: prompts in, plan out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evaluation.samples import ACCEPTANCE, AGAIN, SPEED, Key
from speculation.records import Prompt

PLAIN = "none"
BLOCK_PROMPTS = 2  # requests of one arm in a row in a block, for each that is asked at once
LEAST_BLOCKS = 8  # at a concurrency, where the prompts suffice: fewer tell little of the spread


@dataclass(frozen=True, slots=True)
class Work:
    """One request to be made."""

    run: str
    arm: str
    prompt: Prompt
    temperature: float
    concurrency: int
    block: int = 0
    seed: int | None = None

    @property
    def key(self) -> Key:
        where = (self.temperature, self.concurrency, self.block)
        return self.run, self.arm, self.prompt.id, *where


@dataclass(frozen=True, slots=True)
class Block:
    """One arm's share of a block of the speed runs."""

    arm: str
    temperature: float
    concurrency: int
    number: int
    work: tuple[Work, ...]

    @property
    def key(self) -> tuple[str, float, int, int]:
        return self.arm, self.temperature, self.concurrency, self.number


def acceptance(
    prompts: Sequence[Prompt],
    arms: Sequence[str],
    temperatures: Sequence[float],
    *,
    concurrency: int,
    seed: int,
) -> Iterator[Work]:
    """The runs that acceptance and texts come from."""
    for temperature in temperatures:
        drawn = temperature > 0
        for arm in arms:
            for place, prompt in enumerate(prompts):
                its = seed + place if drawn else None
                yield Work(ACCEPTANCE, arm, prompt, temperature, concurrency, seed=its)
        if drawn:
            for place, prompt in enumerate(prompts):
                its = seed + len(prompts) + place
                yield Work(AGAIN, PLAIN, prompt, temperature, concurrency, seed=its)


def speed(
    prompts: Sequence[Prompt],
    arms: Sequence[str],
    temperatures: Sequence[float],
    concurrencies: Sequence[int],
    *,
    count: int,  # prompts of the runs of one request at a time
    seed: int,
) -> Iterator[tuple[Block, ...]]:
    """The blocks of the speed runs, each as the arms' shares in their order."""
    if not count:
        return
    for temperature in temperatures:
        for concurrency in concurrencies:
            size, chosen = _spread(prompts, count, concurrency)
            for number, first in enumerate(range(0, len(chosen), size)):
                order = arms if number % 2 == 0 else list(reversed(arms))
                its = seed + first if temperature > 0 else None
                yield tuple(
                    Block(
                        arm,
                        temperature,
                        concurrency,
                        number,
                        tuple(
                            Work(SPEED, arm, prompt, temperature, concurrency, number, its)
                            for prompt in chosen[first : first + size]
                        ),
                    )
                    for arm in order
                )


def _spread(prompts: Sequence[Prompt], count: int, concurrency: int) -> tuple[int, list[Prompt]]:
    """How many prompts a block has, and which prompts: spread evenly over all of them.

    At a higher concurrency a block is longer, so that its slots are full for most of it; where
    that leaves too few blocks, every slot answers one.
    """
    size = BLOCK_PROMPTS * concurrency
    if len(prompts) < LEAST_BLOCKS * size:
        size = max(concurrency, min(size, len(prompts) // LEAST_BLOCKS), BLOCK_PROMPTS)
    wanted = min(len(prompts), count if concurrency == 1 else max(count, LEAST_BLOCKS * size))
    wanted = max(wanted - wanted % size, min(size, wanted))  # a last block that is short is left
    return size, [prompts[i * len(prompts) // wanted] for i in range(wanted)]
