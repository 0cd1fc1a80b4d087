"""A server that heals the pair it serves, whichever was ill before."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from monitoring.exchanges import ExchangeLog
from serving import probing
from serving.metrics import Metrics
from serving.service import Service
from serving.settings import ServeSettings
from tests.serving.fakes import FakePair, submit, until

TEXT = SimpleNamespace(encode=lambda text: (9, 10))


def failing(pair: str) -> tuple[FakePair, list[bool]]:
    """A pair whose steps fail for as long as the list says so."""
    fails = [False]

    def step() -> None:
        if fails[0]:
            raise RuntimeError("broken")

    return FakePair(pair=pair, text=TEXT, fails=step), fails


def test_a_pair_that_fails_after_a_swap_is_healed_though_the_one_before_was_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (old, old_fails), (new, new_fails) = failing("old"), failing("new")

    async def ill(service: Service, pair: FakePair, fails: list[bool]) -> None:
        fails[0] = True
        for number in range(3):
            (ticket,) = submit(service.worker, pair, f"{pair.pair}-{number}")
            while not ticket.ended:
                await asyncio.sleep(0.002)
        await until(lambda: service.worker.failing is not None)
        await asyncio.sleep(0)

    async def story() -> None:
        serve = ServeSettings(home=tmp_path, target=Path("toy"))
        service = Service(serve, Metrics(CollectorRegistry()), ExchangeLog(tmp_path / "log"))
        try:
            await service.warm(old.loaded)
            service.worker.switch(old.loaded)
            monkeypatch.setattr(probing, "FIRST_PAUSE_SECONDS", 60.0)  # it is asleep at the swap
            await ill(service, old, old_fails)
            await service.warm(new.loaded)
            service.worker.switch(new.loaded)
            assert service.unready() is None
            monkeypatch.setattr(probing, "FIRST_PAUSE_SECONDS", 0.01)
            await ill(service, new, new_fails)
            new_fails[0] = False
            async with asyncio.timeout(10):
                await until(lambda: service.unready() is None)
        finally:
            service.close()

    asyncio.run(story())
