"""What users get is the target's joint law, for every parameter, through the whole engine.

Four tokens of a target of five: every answer's probability is enumerated by the plain reference,
and thousands of answers decoded with a draft that is far from the target are held against it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
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
    MarkovDrafter,
    TableTarget,
    decoded,
    joint_law,
    model_logits,
    p_value,
    tiny_target,
)

ANSWERS = 1500
SLOTS = 4
ALPHA = 1e-6  # the suite must not fail by chance; each injected fault is far below it

SAMPLINGS = {
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


FAST = ("all",)
EACH = [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in SAMPLINGS]


def fit(
    target: TableTarget | Target,
    drafter: Drafter,
    sampling: Sampling,
    after: After,
    *,
    draft_len: int = 3,
    verification: str = "rejection",
    seeded: bool = False,
    adaptive: bool = False,
) -> float:
    """The p-value of ANSWERS answers against the exact joint law."""
    engine = Engine(
        target,  # type: ignore[arg-type]  # the table stands where a target does
        {"x": drafter},
        default="x",
        draft_len=draft_len,
        slots=SLOTS,
        max_len=16,
        verification=verification,
        adaptive=adaptive,
        entropy=partial(Random(11).getrandbits, 62),
    )
    requests = [
        Request(
            str(number),
            PROMPT,
            LENGTH,
            replace(sampling, seed=number) if seeded else sampling,
            stop_ids=STOPS,
        )
        for number in range(ANSWERS)
    ]
    return p_value(joint_law(after, sampling, STOPS), decoded(engine, requests))


def table_fit(kind: str, sampling: Sampling, **options: Any) -> float:
    target = TableTarget()
    if kind in ("sampled", "one_hot"):
        drafter: Drafter = MarkovDrafter(seed=5, one_hot=kind == "one_hot")
    else:
        drafter = load_drafter(kind, target, rows=SLOTS, max_len=16)  # type: ignore[arg-type]  # as above
    return fit(target, drafter, sampling, target.after, **options)


@pytest.mark.parametrize("kind", ["sampled", "one_hot"])
@pytest.mark.parametrize("name", EACH)
def test_the_joint_law_is_the_targets_for_every_parameter(name: str, kind: str) -> None:
    assert table_fit(kind, SAMPLINGS[name]) > ALPHA


@pytest.mark.parametrize("kind", ["none", "ngram"])
@pytest.mark.parametrize("name", FAST)
def test_the_joint_law_is_the_targets_without_weights(name: str, kind: str) -> None:
    assert table_fit(kind, SAMPLINGS[name]) > ALPHA


@pytest.mark.parametrize("kind", ["sampled", "one_hot"])
@pytest.mark.parametrize("name", EACH)
def test_block_verification_has_the_same_joint_law(name: str, kind: str) -> None:
    assert table_fit(kind, SAMPLINGS[name], verification="block") > ALPHA


@pytest.mark.parametrize("kind", ["none", "one_hot"])
@pytest.mark.parametrize("name", EACH)
def test_seeded_requests_have_the_same_joint_law(name: str, kind: str) -> None:
    assert table_fit(kind, SAMPLINGS[name], seeded=True) > ALPHA


@pytest.mark.parametrize("kind", ["sampled", pytest.param("one_hot", marks=pytest.mark.slow)])
def test_the_joint_law_is_the_same_where_k_adapts(kind: str) -> None:
    assert table_fit(kind, SAMPLINGS["all"], adaptive=True) > ALPHA


@pytest.mark.parametrize("draft_len", [1, pytest.param(2, marks=pytest.mark.slow), 8])
def test_the_joint_law_is_the_same_at_every_k(draft_len: int) -> None:
    assert table_fit("sampled", SAMPLINGS["all"], draft_len=draft_len) > ALPHA


@pytest.mark.slow
@pytest.mark.parametrize("seeded", [False, True])
@pytest.mark.parametrize("kind", ["head", "model"])
@pytest.mark.parametrize("name", ["temperature", "top_p", "all"])
def test_the_joint_law_is_the_targets_with_a_draft_of_weights(
    tmp_path: Path, name: str, kind: str, seeded: bool
) -> None:
    target = tiny_target(tmp_path / "target")
    if kind == "model":
        tiny_target(tmp_path / "draft", seed=1)
    else:
        torch.manual_seed(3)
        head = Head(head_config(target, draft_vocab=4))
        head.choose_tokens(torch.tensor([0, 1, 2, 4]))  # one of the five it cannot propose
        save_head(head, tmp_path / "draft")
    drafter = load_drafter(tmp_path / "draft", target, rows=SLOTS, max_len=16)
    after = model_logits(tmp_path / "target")
    assert fit(target, drafter, SAMPLINGS[name], after, seeded=seeded) > ALPHA


def test_another_law_is_told_apart() -> None:
    """The test can fail: what is decoded at temperature 1 is not the law of temperature 1.4."""
    target = TableTarget()
    law = joint_law(target.after, Sampling(temperature=1.4), STOPS)
    engine = Engine(
        target,  # type: ignore[arg-type]  # as above
        {"x": MarkovDrafter(seed=5, one_hot=False)},
        default="x",
        slots=SLOTS,
        max_len=16,
        entropy=partial(Random(11).getrandbits, 62),
    )
    warm = Sampling(temperature=1.0)
    requests = [Request(str(n), PROMPT, LENGTH, warm, stop_ids=STOPS) for n in range(ANSWERS)]
    assert p_value(law, decoded(engine, requests)) < ALPHA
