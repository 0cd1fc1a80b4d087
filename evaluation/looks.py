"""What growing data is of: prompts in an order that makes every look a random part of all of them,
and how many of each kind there are in all.

A file is mostly sorted by something, and a look at the first quarter of a sorted file knows nothing
of the rest. So prompts are mixed, each kind spread evenly over the whole: a look then has of each
what its share of the prompts is. No clock and no generator: the same prompts have the same order
in every run, so that one that was cut short goes on. Knows prompts; knows nothing of levels.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from evaluation.report import PromptFacts
from evaluation.samples import prompt_digest
from evaluation.slicing import NO, bucket
from evaluation.spending import Stratum
from speculation.records import Prompt

Kind = tuple[str, str, str, int]


def strata_of(
    prompts: Iterable[Prompt | PromptFacts], tokens: Mapping[str, int]
) -> tuple[Stratum, ...]:
    """How many prompts there are of each kind. `tokens`: lengths by id, those that are known."""
    counted = Counter(_kind(prompt, tokens) for prompt in prompts)
    return tuple(Stratum(*kind, count) for kind, count in sorted(counted.items()))


def mixed(prompts: Sequence[Prompt], tokens: Mapping[str, int]) -> tuple[Prompt, ...]:
    """The prompts in an order of which every beginning holds its share of each kind, give or take
    one, and else is random."""
    kinds: dict[Kind, list[Prompt]] = {}
    for prompt in sorted(prompts, key=_luck):
        kinds.setdefault(_kind(prompt, tokens), []).append(prompt)
    placed = [
        ((number + _chance(repr(kind))) / len(members), _luck(prompt), prompt)
        for kind, members in kinds.items()
        for number, prompt in enumerate(members)
    ]
    return tuple(prompt for *_, prompt in sorted(placed, key=lambda each: each[:2]))


def _kind(prompt: Prompt | PromptFacts, tokens: Mapping[str, int]) -> Kind:
    length = bucket(tokens[prompt.id]) if prompt.id in tokens else 0
    return prompt.task, prompt.language, prompt.adapter or NO, length


def _luck(prompt: Prompt) -> float:
    return _chance(f"{prompt_digest(prompt)} {prompt.id}")


def _chance(of: str) -> float:
    """A number from 0 to 1 that is always the same for the same text."""
    return int.from_bytes(hashlib.sha256(of.encode()).digest()[:6]) / 2**48
