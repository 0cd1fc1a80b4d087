"""A draft that fails in the middle of a request: nobody's answer suffers, and it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from prometheus_client import CollectorRegistry

from monitoring.outbox import Outbox
from serving.faults import Faults
from serving.metrics import Metrics
from serving.settings import ServeSettings
from speculation.breaker import Breaker, FaultKind, Slowness
from speculation.drafters import Ask, NgramDrafter, Proposal
from speculation.guard import Guarded
from tests.serving.fakes import FakePair
from tests.serving.served import Served, serving

KINDS: tuple[FaultKind, ...] = get_args(FaultKind)


class Odd(NgramDrafter):
    """Goes wrong at its second proposal and from then on, in one way."""

    def __init__(self, kind: FaultKind, vocab_size: int) -> None:
        super().__init__()
        self.odd, self.vocab_size, self.asked = kind, vocab_size, 0

    def propose(self, asks: Sequence[Ask]) -> Proposal:
        self.asked += 1
        if self.asked < 2 or self.odd == "slow":  # its guard finds it so
            return super().propose(asks)
        if self.odd == "exception":
            raise RuntimeError("broken by <prompt>")
        if self.odd == "memory":
            raise MemoryError
        if self.odd == "width":
            return Proposal([[1] * 99 for _ in asks], None)
        law = torch.full((1, self.vocab_size), torch.nan if self.odd == "nan" else 1.0)
        return Proposal([[1] for _ in asks], [law for _ in asks])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def served(target_folder: Path, home: Path) -> Iterator[Served]:
    settings = ServeSettings(
        home=home, target=target_folder, draft="ngram", max_slots=2, adaptive=False
    )
    with serving(settings) as server:
        yield server


def break_draft(served: Served, kind: FaultKind) -> None:
    """Let the drafter fail from its second proposal on, behind a new guard."""
    loaded, engine = served.loaded, served.loaded.engine
    vocab_size = loaded.host.target.vocab_size
    engine._drafting.guarded["ngram"] = Guarded(
        Odd(kind, vocab_size),
        vocab_size=vocab_size,
        clock=engine._clock,
        breaker=Breaker(engine._clock, faults=2, cool_down_seconds=600.0),
        slowness=Slowness(factor=0.0, rounds=2) if kind == "slow" else None,
        on_fault=lambda fault: loaded._told("ngram", fault),
    )


def answer(served: Served, **more: Any) -> str:
    body = {"prompt": "the quick brown fox the quick brown", "max_tokens": 24, "temperature": 0}
    found = served.client.post("/v1/completions", json=body | more)
    assert found.status_code == 200
    return str(found.json()["choices"][0]["text"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_changes_no_answer_and_is_one_alarm_while_it_lasts(
    served: Served, home: Path, kind: FaultKind, caplog: pytest.LogCaptureFixture
) -> None:
    right = answer(served)
    before = len(Outbox(home / "monitoring" / "outbox").alarms())
    break_draft(served, kind)
    assert [answer(served) for _ in range(5)] == [right] * 5

    told = served.client.get("/admin/pair").json()["drafters"]["ngram"]
    assert told["breaker"] == "open"
    assert told["opened"] == 1
    assert set(told["faults"]) == {kind}
    assert told["latest"].startswith(f"{kind}: ")
    assert f'kind="{kind}"' in served.client.get("/metrics").text

    def alarms() -> list[Any]:
        return Outbox(home / "monitoring" / "outbox").alarms()[before:]

    served.until(lambda: bool(alarms()))
    (alarm,) = alarms()
    assert alarm.cause == "drafter_fault"
    assert alarm.pair == served.loaded.pair
    assert kind in alarm.statement
    assert "<prompt>" not in alarm.statement + caplog.text


def test_a_pair_that_is_loaded_once_more_and_fails_again_is_another_alarm(tmp_path: Path) -> None:
    box = Outbox(tmp_path)

    async def story() -> None:
        faults = Faults(Metrics(CollectorRegistry()), box)
        for times in (1, 2):
            pair, breaker = FakePair(), Breaker(lambda: 0.0)
            pair.start()
            pair.engine.breakers = {"head": breaker}
            for _ in range(2):  # the second time it is open already
                faults.told(pair.loaded, "head", breaker.record("slow", "too slow"))
                await asyncio.sleep(0)
            async with asyncio.timeout(10):
                while len(box.alarms()) < times:
                    await asyncio.sleep(0.002)

    asyncio.run(story())
    assert len(box.alarms()) == 2


def test_the_next_engine_is_made_over_and_drafts_again(served: Served) -> None:
    break_draft(served, "memory")
    answer(served)
    answer(served)

    def fails() -> Any:
        raise RuntimeError("broken")

    served.loaded.engine.step = fails  # type: ignore[method-assign]  # a test's fault
    body = {"prompt": "the fox", "max_tokens": 3}
    assert served.client.post("/v1/completions", json=body).status_code == 500
    answer(served)
    assert served.client.get("/admin/pair").json()["drafters"]["ngram"]["breaker"] == "closed"
