"""Everything that can meet in one engine, mixed at random, gives each request its plain answer.

Drafters, K given and adapted, prompts that share beginnings and are read in small chunks, scopes,
cancelled requests, penalties, stop tokens, both verifications; all greedy or seeded, so that there
is one right answer, which each request gets alone and undrafted.
"""

from __future__ import annotations

from functools import partial
from itertools import count
from pathlib import Path
from random import Random

import pytest

from speculation import head_drafter, model_drafter, prompts
from speculation.breaker import DrafterFault
from speculation.drafters import Drafter, NoDrafter, load_drafter
from speculation.engine import Engine
from speculation.sampling import Sampling
from speculation.sequence import Event, Request
from speculation.target import Target

REQUESTS, MAX_LEN = 14, 120
DRAFTERS = ("head", "model", "ngram", "none")


def some_requests(random: Random) -> list[Request]:
    starts = [[random.randrange(4, 290) for _ in range(70)] for _ in range(3)]
    found = []
    for number in range(REQUESTS):
        start = random.choice(starts)[: random.choice((1, 5, 33, 40, 65))]
        end = [random.randrange(4, 290) for _ in range(random.choice((0, 1, 20)))]
        sampling = Sampling(
            temperature=random.choice((0.0, 0.7)),
            seed=number,
            top_p=random.choice((1.0, 0.9)),
            frequency_penalty=random.choice((0.0, 0.5)),
            min_tokens=random.choice((0, 3)),
            logit_bias=random.choice(((), ((7, 2.0),))),
        )
        found.append(
            Request(
                str(number),
                tuple(start + end),
                random.choice((1, 2, 9, 24)),
                sampling,
                stop_ids=frozenset(random.sample(range(300), random.choice((0, 20)))),
                draft_len=random.choice((None, 0, 1, 3, 16)),
                drafter=random.choice(DRAFTERS),
                scope=random.choice(("", "a")),
            )
        )
    return found


def answers(
    engine: Engine, requests: list[Request], random: Random | None = None
) -> dict[str, tuple[list[int], Event]]:
    """Asked one after the other, or, with `random`, whenever it likes, some of them cancelled."""
    tokens: dict[str, list[int]] = {request.id: [] for request in requests}
    last: dict[str, Event] = {}
    left = list(requests)
    while left or not engine.idle:
        if left and (engine.idle or (random is not None and random.random() < 0.5)):
            engine.submit(left.pop())
        if random is not None and random.random() < 0.04:
            engine.cancel(str(random.randrange(REQUESTS)))
        for event in engine.step():
            tokens[event.id].extend(event.token_ids)
            if event.outcome is not None:
                last[event.id] = event
    return {key: (tokens[key], event) for key, event in last.items()}


@pytest.mark.parametrize("seed", range(2))
def test_whatever_meets_in_an_engine_each_request_gets_its_plain_answer(
    folders: tuple[Path, Path], target: Target, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    for module, name, size in (
        (prompts, "PREFILL_CHUNK", 9),
        (head_drafter, "CHUNK", 12),
        (model_drafter, "CHUNK", 12),
    ):
        monkeypatch.setattr(module, name, size)
    random = Random(seed)
    requests = some_requests(random)
    nothing: dict[str, Drafter] = {name: NoDrafter() for name in DRAFTERS}
    wanted = answers(Engine(target, nothing, default="none", slots=1, max_len=MAX_LEN), requests)
    draft = {"head": folders[1], "model": folders[0]}
    faults: list[DrafterFault] = []
    slots = random.choice((3, 4))
    engine = Engine(
        target,
        {
            name: load_drafter(draft.get(name, name), target, rows=slots, max_len=MAX_LEN)
            for name in DRAFTERS
        },
        default="none",
        slots=slots,
        max_len=MAX_LEN,
        adaptive=True,
        prefix_tokens=200,
        verification=("block", "rejection")[seed % 2],
        on_fault=lambda name, fault: faults.append(fault),
        clock=partial(next, count()),  # a second each time that it is read: K is the same again
    )
    found = answers(engine, requests, random)
    assert [fault for fault in faults if fault.kind != "slow"] == []
    assert found.keys() == wanted.keys()
    for key, (tokens, event) in found.items():
        plain, plainly = wanted[key]
        cancelled = event.outcome == "cancelled"
        assert tokens == (plain[: len(tokens)] if cancelled else plain), requests[int(key)]
        assert cancelled or event.outcome == plainly.outcome
        counts = event.counts
        assert counts is not None
        assert counts.accepted <= counts.judged <= counts.drafted
        assert counts.emitted == len(tokens)
    assert sum(event.outcome != "cancelled" for _, event in found.values()) > REQUESTS // 2
