"""In which order the timed prompts are asked: each block an alike mix of them, whatever the file's
order, so that it is not the endpoint that is blamed for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import pytest

from evaluation.client import Answer
from evaluation.samples import Sample, SpeedBlock
from evaluation.slowing import slowed
from evaluation.work import LEAST_BLOCKS, Block, speed
from speculation.records import Counts, Prompt

PLAIN = "none"
ANSWER_TOKENS = 20


def asked(number: int, words: int, task: str = "") -> Prompt:
    content = f"question {number} " + "word " * words
    return Prompt(f"q{number}", ({"role": "user", "content": content},), task=task)


SORTED = [asked(number, 10 + 10 * number) for number in range(64)]
BY_TASK = [asked(n, 10 + 400 * (n >= 32), "short" if n < 32 else "long") for n in range(64)]


def seconds(prompt: Prompt) -> float:
    """Of an endpoint whose time is that of reading the question."""
    return len(prompt.messages[0]["content"]) / 1000


def blamed(blocks: Sequence[Sequence[Prompt]], slower: Callable[[int], float]) -> bool:
    """Whether an endpoint that is `slower` in a block by number is said to have slowed down."""
    answer = Answer("p", "r", PLAIN, 0, "", "stop", (), Counts(), 5, 0, ANSWER_TOKENS, 1, 0, 0, 1)
    timed = [
        SpeedBlock(PLAIN, 0.0, 1, number, slower(number) * sum(map(seconds, prompts)))
        for number, prompts in enumerate(blocks)
    ]
    samples = [
        Sample("speed", PLAIN, prompt.id, 0.0, 1, number, answer)
        for number, prompts in enumerate(blocks)
        for prompt in prompts
    ]
    return bool(slowed(timed, samples))


def planned(prompts: Sequence[Prompt], count: int = 64, at_once: int = 1) -> list[list[Prompt]]:
    made: list[tuple[Block, ...]] = list(speed(prompts, [PLAIN], (0.0,), (at_once,), count=count))
    return [[work.prompt for work in block.work] for (block,) in made]


def as_ever(number: int) -> float:
    return 1.0


@pytest.mark.parametrize("at_once", [1, 4])
@pytest.mark.parametrize("count", [24, 64])
@pytest.mark.parametrize("prompts", [SORTED, SORTED[::-1], BY_TASK], ids=["up", "down", "task"])
def test_a_sorted_file_is_not_taken_for_an_endpoint_that_slows_down(
    prompts: list[Prompt], count: int, at_once: int
) -> None:
    blocks = planned(prompts, count, at_once)
    assert len(blocks) >= LEAST_BLOCKS
    assert not blamed(blocks, as_ever)
    times = [sum(map(seconds, block)) for block in blocks]
    assert max(times) < 1.3 * min(times)  # each block an alike mix: in file order, by 10 and more


def test_in_the_order_of_the_file_it_would_be() -> None:
    assert blamed([SORTED[first : first + 2] for first in range(0, 64, 2)], as_ever)


@pytest.mark.parametrize("prompts", [SORTED, BY_TASK], ids=["length", "task"])
def test_an_endpoint_that_does_slow_down_is_still_seen(prompts: list[Prompt]) -> None:
    assert blamed(planned(prompts), lambda number: 1.0 if number < 16 else 2.0)


def test_every_chosen_prompt_is_timed_once_and_the_order_is_the_same_in_every_run() -> None:
    for count in (1, 2, 3, 7, 16, 63, 64):
        blocks = planned(SORTED, count)
        met = [prompt.id for block in blocks for prompt in block]
        assert len(set(met)) == len(met) == (count if count < 2 else count - count % 2)
        assert planned(SORTED, count) == blocks


def test_blocks_whose_arms_are_reversed_are_not_of_other_lengths() -> None:
    blocks = [sum(map(seconds, block)) for block in planned(BY_TASK)]
    assert median(blocks[::2]) == pytest.approx(median(blocks[1::2]), rel=0.1)
