"""A draft that fails half-way bends no law: what it drew before stays, and is judged by its law.

Whether the second token can be drafted depends on the first here, so that to take the first back
would leave the others too many. Everywhere draft and target are alike, or nothing would show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random

import pytest
import torch
from torch import Tensor

from speculation.breaker import DrafterFault
from speculation.drafters import Ask, Drafter, HeadDrafter, ModelDrafter, NoDrafter, Proposal
from speculation.draws import Draws
from speculation.engine import Engine
from speculation.head import Head, head_config
from speculation.history import Past
from speculation.judging import VERIFICATIONS, Draft, judge
from speculation.sampling import Sampling
from speculation.sequence import Request
from speculation.streams import Key
from speculation.target import Target, load_target
from tests.speculation.exact import (
    PROMPT,
    VOCAB,
    Answers,
    TableTarget,
    decoded,
    joint_law,
    model_logits,
    p_value,
    prefix_law,
    prefixes,
    tiny_target,
)

ALPHA = 1e-6
POISON = 0  # the token that nothing can be drafted after
SAMPLED = Sampling(temperature=1.0)
LAW = torch.tensor([0.5, 0.3, 0.2])
ROUNDS = 500


def some_asks() -> list[Ask]:
    return [Ask(row, [1], 3, SAMPLED, seed=row) for row in range(ROUNDS)]


def not_finite(asks: Sequence[Ask]) -> tuple[list[list[int]], list[Tensor | None]]:
    """All rows side by side; those after the poison are NaN."""
    draws = Draws(asks, vocab_size=len(LAW))

    def after(step: int, ids: Tensor) -> Tensor:
        return LAW.log().repeat(len(ids), 1).masked_fill(ids[:, None] == POISON, float("nan"))

    draws.run(LAW.log().repeat(len(asks), 1), 3, after)
    proposal = draws.proposal()
    assert proposal.fault is None
    for row, ids in enumerate(proposal.ids):
        assert (row in proposal.broken) == (POISON in ids[:2])
        assert ids.index(POISON) + 1 == len(ids) if POISON in ids else len(ids) == 3
    assert proposal.probs is not None
    return proposal.ids, list(proposal.probs)


def raising(asks: Sequence[Ask]) -> tuple[list[list[int]], list[Tensor | None]]:
    """Each row for itself, since what is raised ends all rows of a round."""
    found: list[list[int]] = []
    laws: list[Tensor | None] = []

    def after(step: int, ids: Tensor) -> Tensor:
        if POISON in ids.tolist():
            raise RuntimeError("a lookup that fails")
        return LAW.log()[None]

    for ask in asks:
        draws = Draws([ask], vocab_size=len(LAW))
        draws.run(LAW.log()[None], 3, after)
        proposal = draws.proposal()
        assert (proposal.fault is not None) == (POISON in proposal.ids[0][:2])
        assert proposal.fault is None or proposal.fault[0] == "exception"
        assert proposal.probs is not None
        found += proposal.ids
        laws += proposal.probs
    return found, laws


@pytest.mark.parametrize("verification", VERIFICATIONS)
@pytest.mark.parametrize("drafted", [not_finite, raising])
def test_what_depends_on_a_drawn_token_does_not_choose_among_the_rounds(
    drafted: Callable[[Sequence[Ask]], tuple[list[list[int]], list[Tensor | None]]],
    verification: str,
) -> None:
    ids, laws = drafted(some_asks())
    past = Past(SAMPLED, [1], vocab_size=len(LAW))
    drafts = [
        Draft(row, law, past, Key(seed), 1)
        for seed, (row, law) in enumerate(zip(ids, laws, strict=True))
    ]
    logits = LAW.log().expand(ROUNDS, 4, -1)
    kept, added = judge(logits, drafts, VERIFICATIONS[verification])
    assert kept == [len(row) for row in ids]  # the two laws are one
    blocks = [(*row, token) for row, token in zip(ids, added, strict=True) if token is not None]
    first: Answers = {(token,): float(prob) for token, prob in enumerate(LAW)}
    assert p_value(first, prefixes(blocks, 1)) > ALPHA
    # And the test can fail: rounds without a draft after the poison, as it once was.
    censored = [b for b, row in zip(blocks, ids, strict=True) if POISON not in row[:2]]
    assert p_value(first, prefixes(censored, 1)) < ALPHA


def odd_model(home: Path, rows: int) -> Drafter:
    """The target's own copy, but one of its tokens cannot be read."""
    odd = load_target(home, dtype="float32")
    with torch.no_grad():
        odd.embedding[POISON] = float("nan")
    return ModelDrafter(odd, vocab_size=VOCAB, rows=rows, max_len=16)


def odd_head(target: Target, rows: int) -> Drafter:
    torch.manual_seed(3)
    head = Head(head_config(target, draft_vocab=VOCAB)).eval().requires_grad_(False)
    head.choose_tokens(torch.arange(VOCAB))
    embedding = target.embedding.clone()
    embedding[POISON] = float("nan")
    return HeadDrafter(head, embedding, rows=rows, max_len=16)


@pytest.mark.parametrize(("kind", "verification"), [("model", "rejection"), ("head", "block")])
def test_users_get_the_targets_law_from_a_draft_that_cannot_read_one_token(
    tmp_path: Path, kind: str, verification: str
) -> None:
    target = tiny_target(tmp_path)
    law = joint_law(model_logits(tmp_path), SAMPLED, frozenset())
    count = 800
    drafter = odd_model(tmp_path, count) if kind == "model" else odd_head(target, count)
    told: list[DrafterFault] = []
    engine = Engine(
        target,
        {"x": drafter},
        default="x",
        draft_len=3,
        slots=count,
        max_len=16,
        verification=verification,
        on_fault=lambda name, fault: told.append(fault),
        entropy=partial(Random(11).getrandbits, 62),
    )
    found = decoded(engine, [Request(str(n), PROMPT, 4, SAMPLED) for n in range(count)])
    assert {fault.kind for fault in told} == {"nan"}
    for length in (1, 2, 4):
        assert p_value(prefix_law(law, length), prefixes(found, length)) > ALPHA


@pytest.mark.parametrize("kind", ["model", "head"])
@torch.inference_mode()
def test_a_drafter_that_raises_in_its_second_step_tells_so_and_keeps_nothing_of_its_rows(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tiny_target(tmp_path)
    drafter = odd_model(tmp_path, 2) if kind == "model" else odd_head(target, 2)
    states = torch.randn(2, 3 * target.config.hidden_size)
    asks = [Ask(row, PROMPT, 3, SAMPLED, seed=row) for row in range(2)]
    place = drafter.draft if isinstance(drafter, ModelDrafter) else drafter.head  # type: ignore[attr-defined]  # a head's
    name = "forward" if kind == "model" else "step"
    right = getattr(place, name)
    calls = 0

    def fails(*args: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise torch.OutOfMemoryError("the prompt's own words")
        return right(*args)

    monkeypatch.setattr(place, name, fails)
    if kind == "head":
        for row in range(2):
            drafter.observe(row, 0, states)
    proposal = drafter.propose(asks)
    assert proposal.fault is not None
    assert proposal.fault[0] == "memory"
    assert "words" not in proposal.fault[1]
    assert [len(ids) for ids in proposal.ids] == [1, 1]
    assert proposal.probs is not None
    assert [None if law is None else tuple(law.shape) for law in proposal.probs] == [(1, VOCAB)] * 2
    rows = drafter._held if isinstance(drafter, ModelDrafter) else drafter._rows  # type: ignore[attr-defined]  # as above
    assert rows == {}


class Spoiling(NoDrafter):
    """Drafts one token, and does to what it was handed whatever can be done."""

    def propose(self, asks: Sequence[Ask]) -> Proposal:
        for ask in asks:
            past = ask.past
            assert past is not None
            past.extend([0, 1, 2])
            for value in vars(past).values():
                if isinstance(value, Tensor):
                    value.zero_()
            assert isinstance(ask.context, list)
            ask.context.clear()
        return Proposal([[3] for _ in asks], None)


def test_what_a_drafter_does_to_its_request_changes_no_answer() -> None:
    sampling = Sampling(
        temperature=1.0,
        seed=5,
        logit_bias=((4, 2.0),),
        banned=frozenset({0}),
        presence_penalty=1.5,
        repetition_penalty=1.3,
        min_tokens=6,
    )
    answers = []
    for drafter in (NoDrafter(), Spoiling()):
        engine = Engine(TableTarget(), {"x": drafter}, default="x", slots=1, max_len=40)  # type: ignore[arg-type]  # the table stands where a target does
        request = Request("0", PROMPT, 12, sampling, stop_ids=frozenset({2}))
        answers += decoded(engine, [request])
    assert answers[0] == answers[1]
    assert len(answers[0]) >= 6
