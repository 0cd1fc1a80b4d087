"""Who is let in: refused before a text is cut up, all of a request or nothing, within its time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from serving.admission import Admission
from serving.bodies import Ask
from serving.fields import BadRequest
from serving.settings import ServeSettings
from serving.text import Text
from serving.tickets import DeadlineError, Group, QueueFullError
from serving.worker import Worker
from tests.serving import fakes
from tests.serving.fakes import FakePair

ASK = Ask(chat=False, model=None, prompts=("the fox",), max_tokens=5)
Enter = Callable[..., Awaitable[Group]]


class Watched:
    """A tokenizer that counts what it cuts up, and may be held."""

    def __init__(self, text: Text) -> None:
        self.text, self.cut, self.go = text, list[str](), threading.Event()
        self.go.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.text, name)

    def encode(self, text: str) -> tuple[int, ...]:
        self.go.wait(10)
        self.cut.append(text)
        return self.text.encode(text)

    def encode_rendered(self, text: str) -> tuple[int, ...]:
        self.cut.append(text)
        return self.text.encode_rendered(text)


@pytest.fixture
def watched(text: Text) -> Watched:
    return Watched(text)


def run(
    pairs: Sequence[FakePair],
    job: Callable[[Enter, Worker], Awaitable[None]],
    *,
    queue_tokens: int = 1000,
    **settings: Any,
) -> list[tuple[str, str]]:
    """`job` gets a door to the first of `pairs` and the worker behind it."""

    async def over(worker: Worker) -> None:
        for pair in pairs:
            await worker.open(pair.loaded)
        worker.switch(pairs[0].loaded)
        serve = ServeSettings(home=Path(), target=Path("toy"), **settings)

        def current() -> Any:
            return worker.current

        door = Admission(serve, worker, current)

        async def enter(ask: Ask, arrived: float | None = None) -> Group:
            arrived = worker.clock() if arrived is None else arrived
            return await door.admit(ask, arrived=arrived, tenant="us")

        try:
            await job(enter, worker)
        finally:
            door.close()

    return fakes.run(over, queue_tokens=queue_tokens)


def held(watched: Watched) -> FakePair:
    """A pair whose engine does nothing until its text's `go` is set."""

    def waits() -> None:
        watched.go.wait(10)

    return FakePair(text=watched, slots=1, max_len=300, fails=waits)


def test_a_full_queue_turns_away_before_a_text_is_cut_up(watched: Watched) -> None:
    async def job(enter: Enter, worker: Worker) -> None:
        watched.go.clear()
        waiting = [asyncio.ensure_future(enter(replace(ASK, max_tokens=90))) for _ in range(5)]
        await asyncio.sleep(0)
        for _ in range(20):
            with pytest.raises(QueueFullError):
                await enter(replace(ASK, max_tokens=90))
        assert not watched.cut
        watched.go.set()
        for group in await asyncio.gather(*waiting):
            assert len(group.tickets) == 1
        await worker.drained()
        assert len(watched.cut) == len(waiting)
        assert worker.waiting_tokens == 0

    run([held(watched)], job, queue_tokens=480)


def test_a_text_of_few_bytes_a_token_is_asked_again_once_its_tokens_are_known(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched, "encode", lambda text: (9,) * 10 * len(text))

    async def job(enter: Enter, worker: Worker) -> None:
        watched.go.clear()
        for _ in range(2):
            await enter(replace(ASK, prompts=((9,),), max_tokens=20))
        with pytest.raises(QueueFullError):
            await enter(replace(ASK, prompts=("dense",)))
        assert worker.waiting_tokens == 42
        await enter(replace(ASK, prompts=("d",)))  # 15 tokens
        watched.go.set()
        await worker.drained()

    run([held(watched)], job, queue_tokens=62)


def test_who_comes_at_once_to_free_slots_is_let_in_whatever_it_costs(watched: Watched) -> None:
    async def job(enter: Enter, worker: Worker) -> None:
        asks = [enter(replace(ASK, max_tokens=90)) for _ in range(5)]
        found = await asyncio.gather(*asks, return_exceptions=True)
        assert [isinstance(one, QueueFullError) for one in found] == [False] * 3 + [True] * 2

    run([FakePair(text=watched, slots=3)], job, queue_tokens=100)


@pytest.mark.parametrize("chat", [False, True])
def test_a_text_that_cannot_fit_is_refused_before_it_is_cut_up(
    watched: Watched, chat: bool
) -> None:
    huge = "x" * 2_000_000
    ask = replace(ASK, prompts=(huge,))
    if chat:
        ask = replace(ASK, chat=True, prompts=(), messages=({"role": "user", "content": huge},))

    async def job(enter: Enter, worker: Worker) -> None:
        with pytest.raises(BadRequest, match="at least [0-9]+ prompt tokens") as caught:
            await enter(ask)
        assert caught.value.code == "context_length_exceeded"
        assert not watched.cut
        assert worker.waiting_tokens == 0

    run([FakePair(text=watched, max_len=300)], job)


def test_a_long_text_holds_up_no_short_one(watched: Watched) -> None:
    async def job(enter: Enter, worker: Worker) -> None:
        cut = watched.encode

        def slowly(text: str) -> tuple[int, ...]:
            if len(text) > 20_000:
                watched.go.wait(10)
            return watched.text.encode(text)

        watched.encode = slowly  # type: ignore[method-assign]
        watched.go.clear()
        long = asyncio.ensure_future(enter(replace(ASK, prompts=("the fox " * 3000,))))
        assert len((await asyncio.wait_for(enter(ASK), 5)).tickets) == 1
        assert not long.done()
        watched.go.set()
        await long
        watched.encode = cut  # type: ignore[method-assign]

    run([FakePair(text=watched, max_len=30_000)], job, queue_tokens=10**6)


def test_time_runs_while_a_text_is_cut_up_and_nothing_is_left_of_it(watched: Watched) -> None:
    async def job(enter: Enter, worker: Worker) -> None:
        watched.go.clear()
        with pytest.raises(DeadlineError):
            await enter(ASK)
        with pytest.raises(DeadlineError):
            await enter(ASK, arrived=worker.clock() - 1)  # its body took so long
        watched.go.set()
        assert worker.waiting_tokens == 0
        assert not worker.tickets

    assert run([held(watched)], job, deadline_seconds=0.1) == []


def test_a_request_that_left_while_its_text_was_cut_up_is_not_begun(watched: Watched) -> None:
    async def job(enter: Enter, worker: Worker) -> None:
        watched.go.clear()
        left = asyncio.ensure_future(enter(ASK))
        await asyncio.sleep(0.01)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        watched.go.set()
        assert worker.waiting_tokens == 0
        assert not worker.tickets

    assert run([held(watched)], job) == []


def test_a_swap_while_a_text_is_cut_up_cuts_it_up_for_the_new_pair(watched: Watched) -> None:
    old, new = held(watched), FakePair("new", text=watched)

    async def job(enter: Enter, worker: Worker) -> None:
        watched.go.clear()
        asked = asyncio.ensure_future(enter(ASK))
        await asyncio.sleep(0.01)
        worker.switch(new.loaded)
        watched.go.set()
        assert (await asked).tickets[0].pair == "new"
        assert watched.cut == ["the fox"] * 2

    run([old, new], job)


def test_prompts_and_choices_are_tickets_in_the_api_s_order(watched: Watched) -> None:
    async def job(enter: Enter, worker: Worker) -> None:
        ask = replace(ASK, prompts=("the fox", (9, 10)), n=3, sampling={"seed": 4})
        group = await enter(ask)
        requests = [ticket.request for ticket in group.tickets]
        fox = watched.text.encode("the fox")
        assert [request.prompt_ids for request in requests] == [fox] * 3 + [(9, 10)] * 3
        assert [request.choice for request in requests] == [0, 1, 2] * 2
        assert len({request.id for request in requests}) == 6
        assert {request.id.split("-")[1] for request in requests} == {requests[0].id[5:]}
        assert {request.scope for request in requests} == {"us"}
        seen = [await group.next() for _ in range(30)]
        assert [sum(place == index for place, _ in seen) for index in range(6)] == [5] * 6

    run([FakePair(text=watched, slots=3, adaptive=True)], job)


def test_all_of_a_request_or_nothing(watched: Watched) -> None:
    async def job(enter: Enter, worker: Worker) -> None:
        with pytest.raises(BadRequest, match="token id 999"):
            await enter(replace(ASK, prompts=("the fox", (9, 999))))
        assert not worker.tickets
        assert worker.waiting_tokens == 0

    assert run([FakePair(text=watched)], job) == []


@pytest.mark.parametrize(
    ("sampling", "asked", "k"), [({}, None, None), ({"seed": 1}, None, 4), ({}, 2, 2)]
)
def test_k_adapts_unless_it_is_asked_for_or_a_seed_is(
    watched: Watched, sampling: dict[str, Any], asked: int | None, k: int | None
) -> None:
    async def job(enter: Enter, worker: Worker) -> None:
        group = await enter(replace(ASK, sampling=sampling, draft_len=asked))
        (ticket,) = group.tickets
        assert ticket.request.draft_len == k
        assert ticket.draft_len == (k or 4)

    run([FakePair(text=watched, adaptive=True)], job)


def test_an_adapter_is_asked_for_as_a_model(watched: Watched) -> None:
    async def job(enter: Enter, worker: Worker) -> None:
        for name, adapter in ((None, None), ("toy", None), ("french", "french")):
            (ticket,) = (await enter(replace(ASK, model=name))).tickets
            assert ticket.request.adapter == adapter
        with pytest.raises(BadRequest, match="'german' is not served here") as caught:
            await enter(replace(ASK, model="german"))
        assert (caught.value.status, caught.value.code) == (404, "model_not_found")

    run([FakePair(text=watched, adapters={"french": "digest"})], job)
