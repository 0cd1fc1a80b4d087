"""The engines' thread: what runs beside it changes nothing, what fails in it ends only itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from serving.loading import Host, Loaded, static_arm
from serving.settings import ServeSettings
from serving.tickets import QueueFullError, Ticket
from serving.worker import Worker
from speculation.sampling import Sampling
from speculation.sequence import Event, Request
from tests.serving.fakes import run


@pytest.fixture(scope="module")
def host(target_folder: Path) -> Host:
    return Host.load(target_folder, ServeSettings(home=Path(), target=target_folder))


@pytest.fixture
def loaded(host: Host, draft_folder: Path) -> Loaded:
    settings = ServeSettings(home=Path(), target=host.folder, max_slots=2, max_context=300)
    arm = static_arm(host, str(draft_folder))
    return Loaded.prepare(host, {arm.name: arm}, settings)


def submit(worker: Worker, loaded: Loaded, *requests: Request) -> list[Ticket]:
    return [worker.submit([request], loaded).tickets[0] for request in requests]


async def following(ticket: Ticket) -> Event:
    return (await ticket.events.get())[1]


async def last(ticket: Ticket) -> Event:
    while (event := await following(ticket)).outcome is None:
        pass
    return event


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def test_a_model_that_loads_beside_changes_no_answer(loaded: Loaded) -> None:
    """Loading sets torch's default dtype, which is one for all threads."""
    requests = [
        Request(f"r{seed}", (9, 10, 11), 40, Sampling(temperature=temperature, seed=seed))
        for seed, temperature in enumerate((1.0, 0.0, 1.0, 0.7))
    ]

    async def answers(worker: Worker) -> list[list[int]]:
        tickets = submit(worker, loaded, *requests)
        for ticket in tickets:
            assert (await last(ticket)).outcome in ("length", "stop")
        return [ticket.emitted for ticket in tickets]

    async def job(worker: Worker) -> None:
        await worker.open(loaded)
        alone = await answers(worker)
        with default_dtype(torch.bfloat16):
            beside = await answers(worker)
        assert beside == alone

    run(job)


def test_every_ticket_ends_once_whatever_becomes_of_it(loaded: Loaded) -> None:
    async def job(worker: Worker) -> None:
        await worker.open(loaded)
        tickets = submit(worker, loaded, *[Request(str(n), (9,), 60) for n in range(6)])
        await following(tickets[0])
        worker.cancel(tickets[0])  # it runs
        worker.cancel(tickets[5])  # it waits
        worker.cancel(tickets[5])
        await worker.drained()
        worker.cancel(tickets[1])  # it has ended
        await asyncio.sleep(0.05)

    ended = run(job)
    assert sorted(name for name, _ in ended) == [str(n) for n in range(6)]
    assert {name for name, outcome in ended if outcome == "cancelled"} == {"0", "5"}


def test_a_step_that_fails_ends_those_inside_and_those_who_wait_are_served(
    loaded: Loaded,
) -> None:
    async def job(worker: Worker) -> None:
        await worker.open(loaded)
        step, left = loaded.engine.step, iter(range(5))

        def failing() -> list[Event]:
            if next(left, None) is None:
                raise RuntimeError("out of memory")
            return step()

        loaded.engine.step = failing  # type: ignore[method-assign]  # a test's fault
        submit(worker, loaded, *[Request(str(n), (9,), 60) for n in range(5)])
        await worker.drained()
        assert worker.dead is None

    outcomes = dict(run(job))
    assert [outcomes[name] for name in ("0", "1")] == ["error", "error"]  # two slots
    assert {outcomes[name] for name in ("2", "3", "4")} <= {"length", "stop"}


def test_an_engine_that_cannot_be_made_again_is_said_to_be_dead(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> list[Event]:
        raise RuntimeError("broken")

    async def job(worker: Worker) -> None:
        await worker.open(loaded)
        worker.switch(loaded)
        monkeypatch.setattr(loaded, "restart", broken)
        loaded.engine.step = broken  # type: ignore[method-assign]  # a test's fault
        submit(worker, loaded, *[Request(str(n), (9,), 60) for n in range(4)])
        await worker.drained()
        while worker.dead is None:
            await asyncio.sleep(0.01)

    assert {outcome for _, outcome in run(job)} == {"error"}


def test_a_lane_that_is_left_is_let_go_when_its_last_request_ends(
    loaded: Loaded, host: Host
) -> None:
    settings = ServeSettings(home=Path(), target=host.folder, max_slots=2, max_context=300)
    arm = static_arm(host, "none")
    second = Loaded.prepare(host, {arm.name: arm}, settings)

    async def job(worker: Worker) -> None:
        await worker.open(loaded)
        assert worker.switch(loaded).done()
        (old,) = submit(worker, loaded, Request("old", (9,), 100))
        await following(old)
        await worker.open(second)
        gone = worker.switch(second)
        (new,) = submit(worker, second, Request("new", (9,), 100))
        assert not gone.done()
        assert (await last(old)).outcome == "length"
        await gone
        assert (await last(new)).outcome == "length"
        assert old.emitted[:90] == new.emitted[:90]

    run(job)


def test_the_queue_is_bounded_by_tokens_and_says_when_to_come_back(loaded: Loaded) -> None:
    async def job(worker: Worker) -> None:
        await worker.open(loaded)
        blocked = asyncio.Event()
        pause = asyncio.ensure_future(worker.call(lambda: blocked_wait(blocked)))
        submit(worker, loaded, *[Request(str(n), (9,), 29) for n in range(3)])
        with pytest.raises(QueueFullError) as caught, worker.room(30):
            raise AssertionError("one too many")
        assert 1 <= caught.value.retry_seconds <= 60
        blocked.set()
        await pause
        await worker.drained()
        assert worker.waiting_tokens == 0
        with worker.room(1000):  # nobody waits
            assert worker.waiting_tokens == 1000
        assert worker.waiting_tokens == 0

    def blocked_wait(blocked: asyncio.Event) -> None:
        while not blocked.is_set():
            time.sleep(0.005)

    assert len(run(job, queue_tokens=100)) == 3
