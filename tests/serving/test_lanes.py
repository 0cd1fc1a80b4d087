"""What fails in a lane is that lane's; what fails outside every lane is told to everybody."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from serving.lanes import MOST_FAILURES, LaneError
from serving.tickets import Ticket
from serving.worker import Worker
from speculation.requests import RequestError
from speculation.sequence import Event, Request
from tests.serving.fakes import FakeEngine, FakePair, run, submit, until


def broken() -> None:
    raise RuntimeError("broken")


def test_a_candidate_that_cannot_be_made_again_leaves_the_served_pair_alone() -> None:
    good, bad = FakePair("good"), FakePair("bad", fails=broken, restarts=broken)

    async def job(worker: Worker) -> None:
        await worker.open(good.loaded)
        worker.switch(good.loaded)
        await worker.open(bad.loaded)
        (lost,) = submit(worker, bad, "lost")
        await until(lambda: lost.ended)
        await worker.close(bad.loaded)
        assert worker.dead is worker.failing is None
        submit(worker, good, "kept")
        await worker.drained()

    assert run(job) == [("lost", "error"), ("kept", "length")]


def test_a_pair_that_was_dead_serves_again_once_its_engine_is_there() -> None:
    pair = FakePair(fails=broken, restarts=broken)

    async def job(worker: Worker) -> None:
        await worker.open(pair.loaded)
        worker.switch(pair.loaded)
        submit(worker, pair, "lost")
        await until(lambda: worker.dead is not None)
        (refused,) = submit(worker, pair, "refused")  # nobody waits for an engine that is not there
        await until(lambda: refused.ended)
        with pytest.raises(RuntimeError, match="broken"):
            await worker.revive(pair.loaded)
        assert "made again" in str(worker.dead)
        pair.fails = pair.restarts = lambda: None
        await worker.revive(pair.loaded)
        worker.answers(pair.loaded)
        assert worker.dead is worker.failing is None
        submit(worker, pair, "answered")
        await worker.drained()

    outcomes = [("lost", "error"), ("refused", "error"), ("answered", "length")]
    assert run(job) == outcomes


def test_a_swap_to_a_sound_pair_ends_the_death_of_the_one_before() -> None:
    bad, good = FakePair("bad", fails=broken, restarts=broken), FakePair("good")

    async def job(worker: Worker) -> None:
        await worker.open(bad.loaded)
        worker.switch(bad.loaded)
        submit(worker, bad, "lost")
        await until(lambda: worker.dead is not None)
        await worker.open(good.loaded)
        await worker.switch(good.loaded)
        assert worker.dead is None

    run(job)


def test_a_pair_that_answers_nobody_is_said_to_fail_and_one_answer_between_is_enough() -> None:
    left = [1, 0, 1, 1, 0, 1, 1, 1]  # steps that fail
    told: list[object] = []

    def fails() -> None:
        if left and left.pop(0):
            broken()

    pair = FakePair(slots=1, fails=fails)

    async def job(worker: Worker) -> None:
        await worker.open(pair.loaded)
        worker.switch(pair.loaded)
        for name in "abcdefg":
            assert not told
            submit(worker, pair, name, tokens=1)
            await worker.drained()
        submit(worker, pair, "h", tokens=1)
        await until(lambda: worker.failing is not None)
        assert worker.dead is None  # it may well come back, nothing has to be started again
        assert told == [pair.loaded]

    outcomes = [outcome for _, outcome in run(job, failing=told.append)]
    assert "".join("x" if outcome == "error" else "." for outcome in outcomes) == "x.xx.xxx"
    assert MOST_FAILURES == 3


@pytest.mark.parametrize("what", [SystemExit("a panic"), KeyError("a fault of ours")])
def test_the_death_of_the_thread_ends_everybody_and_is_told(what: BaseException) -> None:
    pair = FakePair(slots=1)

    def dies() -> None:
        raise what

    async def job(worker: Worker) -> None:
        await worker.open(pair.loaded)
        worker.switch(pair.loaded)
        submit(worker, pair, "inside", "waits", tokens=10**6)
        await until(lambda: worker.waiting == 1)
        worker._lanes.put(dies)
        await worker.drained()
        assert type(what).__name__ in str(worker.dead)
        assert worker.waiting_tokens == 0
        with pytest.raises(LaneError):
            await worker.open(FakePair().loaded)
        await worker.close(pair.loaded)  # nothing is left to close, and nobody waits for it
        submit(worker, pair, "late")
        await worker.drained()

    assert run(job) == [("inside", "error"), ("waits", "error"), ("late", "error")]


def test_a_request_that_the_engine_cannot_take_costs_no_other_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    take = FakeEngine.submit

    def picky(engine: FakeEngine, request: Request) -> None:
        if request.id == "huge":
            raise RequestError("token id 12345: wanted 0 to 299", "banned")
        if request.id == "odd":
            raise RuntimeError("cannot allocate memory")
        take(engine, request)

    monkeypatch.setattr(FakeEngine, "submit", picky)
    pair = FakePair()

    async def job(worker: Worker) -> None:
        await worker.open(pair.loaded)
        submit(worker, pair, "one", "huge", "odd", "two")
        await worker.drained()
        assert not worker.tickets
        assert worker.waiting_tokens == 0

    with caplog.at_level(logging.ERROR):
        outcomes = dict(run(job))
    assert outcomes == {"one": "length", "huge": "error", "odd": "error", "two": "length"}
    assert "banned" in caplog.text
    assert "12345" not in caplog.text  # it may be of somebody's prompt


def test_what_cannot_be_counted_is_answered_all_the_same() -> None:
    pair = FakePair()

    def uncountable(ticket: Ticket, last: Event) -> None:
        raise RuntimeError("no place")

    async def job(worker: Worker) -> None:
        await worker.open(pair.loaded)
        tickets = submit(worker, pair, "one", "two")
        await worker.drained()
        for ticket in tickets:
            events = [ticket.events.get_nowait()[1] for _ in range(ticket.events.qsize())]
            assert events[-1].outcome == "length"

    run(job, ended=uncountable)


def test_a_step_that_does_not_come_back_is_said_and_forgiven_when_it_does() -> None:
    go, hangs = threading.Event(), threading.Event()

    def fails() -> None:
        hangs.set()
        go.wait(10)

    pair = FakePair(fails=fails)

    async def job(worker: Worker) -> None:
        await worker.open(pair.loaded)
        submit(worker, pair, "slow")
        await until(hangs.is_set)
        await until(lambda: worker.dead is not None)
        assert "has not come back" in str(worker.dead)
        go.set()
        await worker.drained()
        assert worker.dead is None

    assert run(job, stuck_seconds=0.05) == [("slow", "length")]


def test_probes_are_nobody_s_requests() -> None:
    pair = FakePair(slots=1)

    async def job(worker: Worker) -> None:
        await worker.open(pair.loaded)
        submit(worker, pair, "one", "two", tokens=10**6)
        probe = worker.submit([Request("probe", (9,), 5)], pair.loaded, counted=False)
        await until(lambda: worker.waiting == 1)
        assert worker.running == 2
        probe.give_up("gone")
        await until(lambda: probe.ended)
        worker.cancel_all()
        await asyncio.wait_for(worker.drained(), 5)

    assert {outcome for _, outcome in run(job)} == {"cancelled"}


def test_a_panic_in_what_was_asked_of_the_thread_is_told_to_who_asked_and_ends_nobody() -> None:
    pair = FakePair()

    def panics() -> None:
        raise SystemExit("a panic")

    async def job(worker: Worker) -> None:
        await worker.open(pair.loaded)
        with pytest.raises(RuntimeError, match="SystemExit"):
            await worker.call(panics)
        submit(worker, pair, "after")
        await worker.drained()

    assert run(job) == [("after", "length")]
