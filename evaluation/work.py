"""What a measurement asks, and in which order.

Acceptance: every arm answers every prompt at every temperature, several at a time. Where tokens
are drawn a draft's requests have no seed, as most users' have none, since a seed takes another path
through the server; plain decoding with other seeds (again) is the baseline of the texts, beside the
candidate without one once more and with those seeds (seeded). Speed: without any seed, in blocks of
one arm at one concurrency, the order of the arms reversed from block to block (ABBA), so that a
machine that warms up or slows down favours no arm. Whatever the order of the prompts, each block
has an alike mix of them: in a file sorted by length the later blocks would be the slower ones, and
the endpoint would be blamed. Pure: prompts in, plan out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evaluation.samples import ACCEPTANCE, AGAIN, SEEDED, SPEED, Key
from speculation.records import Prompt

PLAIN, CANDIDATE = "none", "candidate"
BLOCK_PROMPTS = 2  # requests of one arm in a row in a block, for each that is asked at once
LEAST_BLOCKS = 8  # at a concurrency, where the prompts suffice: fewer tell little of the spread
GOLDEN = (5**0.5 - 1) / 2  # the fractions of its multiples lie evenly from 0 to 1, however many


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
    """The runs that acceptance and texts come from. Plain decoding alone is asked with seeds, so
    that its own answers are the same in every measurement."""
    for temperature in temperatures:
        drawn = temperature > 0
        for arm in arms:
            for place, prompt in enumerate(prompts):
                its = seed + place if drawn and arm == PLAIN else None
                yield Work(ACCEPTANCE, arm, prompt, temperature, concurrency, seed=its)
        if not drawn:
            continue
        others = range(seed + len(prompts), seed + 2 * len(prompts))
        for prompt, its in zip(prompts, others, strict=True):
            yield Work(AGAIN, PLAIN, prompt, temperature, concurrency, seed=its)
        if CANDIDATE in arms:
            for prompt in prompts:
                yield Work(AGAIN, CANDIDATE, prompt, temperature, concurrency)
            for prompt, its in zip(prompts, others, strict=True):
                yield Work(SEEDED, CANDIDATE, prompt, temperature, concurrency, seed=its)


def speed(
    prompts: Sequence[Prompt],
    arms: Sequence[str],
    temperatures: Sequence[float],
    concurrencies: Sequence[int],
    *,
    count: int,  # prompts of the runs of one request at a time
) -> Iterator[tuple[Block, ...]]:
    """The blocks of the speed runs, each as the arms' shares in their order."""
    if not count:
        return
    for temperature in temperatures:
        for concurrency in concurrencies:
            size, chosen = _spread(prompts, count, concurrency)
            for number, dealt in enumerate(_dealt(chosen, size)):
                order = arms if number % 2 == 0 else list(reversed(arms))
                yield tuple(
                    Block(
                        arm,
                        temperature,
                        concurrency,
                        number,
                        tuple(
                            Work(SPEED, arm, prompt, temperature, concurrency, number)
                            for prompt in dealt
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


def _dealt(chosen: Sequence[Prompt], size: int) -> list[list[Prompt]]:
    """The prompts in blocks of `size` that are alike, in an order in which any stretch is alike.

    Sorted by kind and length they are cut into as many parts as a block has prompts; a block gets
    one of each part, of the next part from the other end, so that lengths even out. What is left
    of a trend from block to block is scattered, as are long and short ones within a block.
    """
    blocks = len(chosen) // size or 1
    ordered = sorted(chosen, key=_likeness)
    parts = [ordered[first : first + blocks] for first in range(0, len(ordered), blocks)]
    parts = [part[:: -1 if number % 2 else 1] for number, part in enumerate(parts)]
    return [[parts[part][block] for part in _scattered(len(parts))] for block in _scattered(blocks)]


def _likeness(prompt: Prompt) -> tuple[str, str, str, int]:
    """What prompts that take about as long have in common: their kind and, in it, their length."""
    texts = "".join(str(message["content"]) for message in prompt.messages)
    length = len(texts.encode("utf-8", "backslashreplace"))  # tokens follow bytes in every script
    return prompt.task, prompt.language, prompt.adapter or "", length


def _scattered(count: int) -> list[int]:
    """0 to count - 1, neighbours far apart."""
    return sorted(range(count), key=lambda number: number * GOLDEN % 1)
