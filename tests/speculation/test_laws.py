"""What users get is the target's joint law, for every parameter and every drafter.

Four tokens of a target of five: every answer's probability is enumerated by the plain reference,
and thousands of answers decoded with drafts that are far from the target are held against it. The
answers of all parameters decode side by side in one batch, so that a mix of them is tested as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from speculation.drafters import Drafter, load_drafter
from speculation.engine import Engine
from speculation.head import Head, head_config, save_head
from speculation.sampling import Sampling
from speculation.sequence import Request
from speculation.target import Target
from tests.speculation.exact import (
    LENGTH,
    PROMPT,
    STOP,
    After,
    Answers,
    MarkovDrafter,
    TableTarget,
    decoded,
    joint_law,
    model_logits,
    p_value,
    pooled_p_value,
    prefix_law,
    prefixes,
    tiny_target,
)
from tests.toys import decode

ANSWERS = 150  # of each parameter
ALPHA = 1e-6  # the suite must not fail by chance; each injected fault is far below it

SAMPLINGS = {
    "greedy": Sampling(temperature=0.0),
    "temperature": Sampling(temperature=1.0),
    "cold": Sampling(temperature=0.6),
    "hot": Sampling(temperature=2.5),
    "top_k": Sampling(temperature=1.0, top_k=2),
    "top_p": Sampling(temperature=1.0, top_p=0.7),
    "min_p": Sampling(temperature=1.5, min_p=0.3),
    "repetition": Sampling(temperature=1.0, repetition_penalty=2.0),
    "presence": Sampling(temperature=1.0, presence_penalty=1.5),
    "frequency": Sampling(temperature=1.0, frequency_penalty=1.5),
    "bias": Sampling(temperature=1.0, logit_bias=((0, 2.0), (4, -2.0))),
    "banned": Sampling(temperature=1.0, banned=frozenset({0, 3})),
    "allowed": Sampling(temperature=1.0, allowed=frozenset({1, 2, 4})),
    "min_tokens": Sampling(temperature=1.0, min_tokens=3),
    "all": Sampling(
        temperature=0.9,
        top_k=4,
        top_p=0.95,
        min_p=0.02,
        repetition_penalty=1.3,
        presence_penalty=0.4,
        frequency_penalty=0.6,
        logit_bias=((4, 1.0),),
        banned=frozenset({0}),
        min_tokens=2,
    ),
}
STOPS = frozenset({STOP})
ENDLESS = "no stop"  # the temperature alone, with no token that ends an answer
DRAFTERS = ("none", "ngram", "one_hot", "sampled", "model", "greedy model", "head", "greedy head")


class Toys:
    """A target, drafts for it that are far from it, and the exact law of each parameter."""

    def __init__(self, home: Path) -> None:
        self.target: Target = tiny_target(home / "target")
        self.home, after = home, model_logits(home / "target")
        tiny_target(home / "model", seed=1)
        torch.manual_seed(3)
        head = Head(head_config(self.target, draft_vocab=4))
        head.choose_tokens(torch.tensor([0, 1, 2, 4]))  # one of the five it cannot propose
        save_head(head, home / "head")
        self.laws = laws_of(after)

    def drafter(self, kind: str, rows: int) -> Drafter:
        if kind in ("sampled", "one_hot"):
            return MarkovDrafter(seed=5, one_hot=kind == "one_hot")
        greedy, name = kind.startswith("greedy "), kind.removeprefix("greedy ")
        draft = self.home / name if name in ("model", "head") else name
        return load_drafter(draft, self.target, rows=rows, max_len=16, greedy_drafts=greedy)


def laws_of(after: After) -> dict[str, Answers]:
    laws = {name: joint_law(after, sampling, STOPS) for name, sampling in SAMPLINGS.items()}
    return laws | {ENDLESS: joint_law(after, SAMPLINGS["temperature"], frozenset())}


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Toys:
    return Toys(tmp_path_factory.mktemp("laws"))


def asked(name: str, count: int, *, seeded: bool = False) -> list[Request]:
    sampling = SAMPLINGS["temperature" if name == ENDLESS else name]
    return [
        Request(
            f"{name}/{number}",
            PROMPT,
            LENGTH,
            replace(sampling, seed=number) if seeded else sampling,
            stop_ids=frozenset() if name == ENDLESS else STOPS,
        )
        for number in range(count)
    ]


def engine_of(target: Target | TableTarget, drafter: Drafter, slots: int, **options: Any) -> Engine:
    return Engine(
        target,  # type: ignore[arg-type]  # the table stands where a target does
        {"x": drafter},
        default="x",
        **{"draft_len": 3, "slots": slots, "max_len": 16, **options},
        entropy=partial(Random(11).getrandbits, 62),
    )


def p_values(
    target: Target | TableTarget,
    drafter: Callable[[int], Drafter],
    laws: Mapping[str, Answers],
    names: Sequence[str],
    *,
    answers: int = ANSWERS,
    seeded: bool = False,
    **options: Any,
) -> dict[str, float]:
    """Of `answers` answers with each parameter, of all together, and of their first tokens."""
    requests = [request for name in names for request in asked(name, answers, seeded=seeded)]
    engine = engine_of(target, drafter(len(requests)), len(requests), **options)
    found = decoded(engine, requests)
    groups = {
        name: found[place * answers : (place + 1) * answers] for place, name in enumerate(names)
    }
    tables: dict[str, list[tuple[Answers, Sequence[tuple[int, ...]]]]] = {
        name: [(laws[name], got)] for name, got in groups.items()
    }
    tables["together"] = [(laws[name], got) for name, got in groups.items()]
    # In few cells a fault that is everywhere shows sooner than in all answers of four tokens.
    for length in (1, 2):
        tables[f"first {length}"] = [
            (prefix_law(laws[name], length), prefixes(got, length)) for name, got in groups.items()
        ]
    return {name: pooled_p_value(table) for name, table in tables.items()}


ALL = (*SAMPLINGS, ENDLESS)


@pytest.mark.parametrize("kind", DRAFTERS)
def test_the_joint_law_is_the_targets_for_every_parameter_and_drafter(
    toys: Toys, kind: str
) -> None:
    found = p_values(toys.target, partial(toys.drafter, kind), toys.laws, ALL)
    assert min(found.values()) > ALPHA, found


@pytest.mark.slow
@pytest.mark.parametrize("verification", ["rejection", "block"])
@pytest.mark.parametrize("kind", DRAFTERS)
def test_the_joint_law_is_the_targets_over_ten_times_as_many_answers(
    toys: Toys, kind: str, verification: str
) -> None:
    found = p_values(
        toys.target,
        partial(toys.drafter, kind),
        toys.laws,
        ALL,
        answers=10 * ANSWERS,
        verification=verification,
    )
    assert min(found.values()) > ALPHA, found


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "kind", [kind if kind == "one_hot" else pytest.param(kind, marks=SLOW) for kind in DRAFTERS]
)
def test_seeded_requests_have_the_same_joint_law(toys: Toys, kind: str) -> None:
    found = p_values(toys.target, partial(toys.drafter, kind), toys.laws, ALL, seeded=True)
    assert min(found.values()) > ALPHA, found


def table_fit(name: str, kind: str = "sampled", **options: Any) -> float:
    """The least p-value of one parameter's answers on a target that costs nothing."""
    found = p_values(
        table(),
        lambda rows: MarkovDrafter(seed=5, one_hot=kind == "one_hot"),
        table_laws(),
        [name],
        **options,
    )
    return min(found.values())


@cache
def table() -> TableTarget:
    return TableTarget()


@cache
def table_laws() -> dict[str, Answers]:
    return laws_of(table().after)


def test_block_verification_has_the_same_joint_law() -> None:
    """Many answers of one parameter: a fault shows only where a late token makes good for an early
    one. The other parameters change the laws, not how they are compared."""
    assert table_fit("temperature", verification="block", answers=2000) > ALPHA


@pytest.mark.parametrize("draft_len", [1, 2, 8])
def test_the_joint_law_is_the_same_at_every_k(draft_len: int) -> None:
    assert table_fit("all", draft_len=draft_len, answers=600) > ALPHA


@pytest.mark.parametrize("kind", ["sampled", "one_hot"])
def test_the_joint_law_is_the_same_where_k_adapts(kind: str) -> None:
    assert table_fit("all", kind, adaptive=True, answers=400) > ALPHA


@pytest.mark.parametrize("adaptive", [False, True])
def test_the_joint_law_is_the_same_where_requests_come_and_go(adaptive: bool) -> None:
    """Through the engine's own reading of prompts, from which the first token is drawn."""
    drafter = MarkovDrafter(seed=5, one_hot=False)
    engine = engine_of(TableTarget(), drafter, 4, adaptive=adaptive)
    requests = asked("all", 400)
    tokens, _ = decode(engine, requests)
    answers = [tuple(tokens[request.id]) for request in requests]
    assert p_value(table_laws()["all"], answers) > ALPHA


def test_another_law_is_told_apart() -> None:
    """The test can fail: what is decoded at temperature 1 is not the law of temperature 1.4."""
    laws = {"temperature": joint_law(table().after, Sampling(temperature=1.4), STOPS)}
    drafter = MarkovDrafter(seed=5, one_hot=False)
    found = p_values(table(), lambda rows: drafter, laws, ["temperature"], answers=600)
    assert found["temperature"] < ALPHA
