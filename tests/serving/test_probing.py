"""A pair is tried before it serves, within a time, and again when it has stopped answering."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from serving import probing
from serving.probing import ProbeError, heal, warm
from serving.worker import Worker
from speculation.breaker import DrafterFault
from tests.serving import fakes
from tests.serving.fakes import FakePair, run, submit, until

TEXT = SimpleNamespace(encode=lambda text: (9, 10))


def pair(**given: object) -> FakePair:
    return FakePair(text=TEXT, **given)  # type: ignore[arg-type]  # a few of its fields


def refused(bad: FakePair, said: str) -> None:
    """`bad` is refused, and what is served goes on and has nothing beside it."""
    good = pair(pair="good")

    async def job(worker: Worker) -> None:
        await worker.open(good.loaded)
        worker.switch(good.loaded)
        with pytest.raises(ProbeError, match=said):
            await warm(worker, bad.loaded, seconds=10)
        assert worker.current is good.loaded
        assert await worker.call(lambda: len(worker._lanes._lanes)) == 1
        submit(worker, good, "served")
        await worker.drained()

    assert ("served", "length") in run(job)


def test_a_pair_that_answers_is_taken() -> None:
    sound = pair()

    async def job(worker: Worker) -> None:
        await warm(worker, sound.loaded, seconds=10)
        assert worker.running == 0

    (probe,) = run(job)
    assert probe[1] == "length"


def test_a_pair_whose_step_fails_is_refused() -> None:
    def fails() -> None:
        raise RuntimeError("broken")

    refused(pair(fails=fails), "ended with 'error'")


@pytest.mark.parametrize("kind", ["head", "model"])
def test_a_draft_that_fails_is_refused_though_plain_decoding_would_hide_it(kind: str) -> None:
    fault = DrafterFault("exception", "RuntimeError at propose", 0.0)
    refused(pair(kind=kind, failed=[fault]), r"failed to draft \(exception: .*propose\)")


def test_a_draft_with_weights_that_drafts_nothing_is_refused_and_one_without_may_be_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fakes, "DRAFTED", 0)
    refused(pair(kind="model"), "drafted nothing")
    run(lambda worker: warm(worker, pair(kind="ngram").loaded, seconds=10))


def test_a_pair_that_does_not_answer_in_time_is_refused_and_stops_nobody_for_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probing, "CLOSE_SECONDS", 0.05)
    go = threading.Event()
    hangs = pair(fails=lambda: go.wait(10) and None)

    async def job(worker: Worker) -> None:
        with pytest.raises(ProbeError, match=r"did not answer within 0\.1 s"):
            await warm(worker, hangs.loaded, seconds=0.1)
        go.set()  # a step that hangs cannot be interrupted; this one comes back
        await worker.drained()
        assert await worker.call(lambda: len(worker._lanes._lanes)) == 0

    assert [outcome for _, outcome in run(job)] == ["cancelled"]


def test_a_pair_that_stopped_answering_is_tried_until_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probing, "FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(probing, "LONGEST_PAUSE_SECONDS", 0.01)
    tries = []

    def short_of_memory() -> None:
        tries.append(time.monotonic())
        if len(tries) < 4:
            raise MemoryError

    def fails() -> None:
        if not tries:
            raise RuntimeError("broken")

    sick = pair(fails=fails, restarts=short_of_memory)

    async def job(worker: Worker) -> None:
        await worker.open(sick.loaded)
        worker.switch(sick.loaded)
        submit(worker, sick, "lost")
        await worker.drained()
        await until(lambda: worker.dead is not None)
        await heal(worker, sick.loaded, seconds=5)
        assert worker.dead is worker.failing is None
        submit(worker, sick, "answered")
        await worker.drained()

    outcomes = run(job)
    assert outcomes[0] == ("lost", "error")
    assert outcomes[-1] == ("answered", "length")
    assert len(tries) == 4


def test_a_pair_that_was_replaced_is_not_healed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "FIRST_PAUSE_SECONDS", 0.001)
    sick, good = pair(), pair()

    async def job(worker: Worker) -> None:
        await worker.open(good.loaded)
        worker.switch(good.loaded)
        await heal(worker, sick.loaded, seconds=5)

    assert run(job) == []
