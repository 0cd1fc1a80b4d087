"""Work is started once by its key, and again only when it was cut short."""

from __future__ import annotations

import time
from uuid import uuid4

import pytest
from prefect import flow, get_client
from prefect.client.schemas.objects import FlowRun
from prefect.states import Cancelled, Completed, Crashed, Failed, Running

from flows.runs import (
    INTERRUPTED,
    KILLED,
    STARTED,
    TRIES,
    crash_leftovers,
    find,
    given_up,
    start_once,
)

pytestmark = pytest.mark.usefixtures("prefect_server")
NAME = "work/work"


@flow(name="work")
def work() -> None:
    """Never run here: only its runs' states matter."""


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(STARTED, str(time.time() - 60))
    with get_client(sync_client=True) as client:
        flow_id = client.create_flow_from_name("work")
        client.create_deployment(flow_id=flow_id, name="work", entrypoint="tests.none.work")
    return f"work:{uuid4()}"


def become(run: FlowRun | None, state: object) -> None:
    assert run is not None
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(run.id, state, force=True)  # type: ignore[arg-type]  # any State


def test_work_that_is_under_way_is_not_started_again(key: str) -> None:
    first = start_once(NAME, {}, key)
    again = start_once(NAME, {}, key)
    assert first is not None
    assert again is not None
    assert again.id == first.id


def test_work_that_is_done_is_never_started_again(key: str) -> None:
    become(start_once(NAME, {}, key), Completed())
    assert start_once(NAME, {}, key) is None
    assert given_up(key) is None


def test_a_run_that_ended_with_its_worker_is_followed_by_another_however_often(key: str) -> None:
    ids = set()
    for number in range(TRIES + 1):
        run = start_once(NAME, {}, key)
        assert run is not None
        ids.add(run.id)
        become(run, Crashed(message=KILLED) if number % 2 else Cancelled(message=INTERRUPTED))
    assert len(ids) == TRIES + 1
    assert given_up(key) is None


def test_a_run_that_fails_by_itself_is_tried_so_often_and_then_given_up(key: str) -> None:
    for _ in range(TRIES):
        become(start_once(NAME, {}, key), Failed(message="no such folder"))
    assert start_once(NAME, {}, key) is None
    assert "no such folder" in str(given_up(key))


def test_a_new_worker_tries_again_what_an_earlier_one_gave_up(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(TRIES):
        become(start_once(NAME, {}, key), Failed(message="no such folder"))
    monkeypatch.setenv(STARTED, str(time.time() + 1))
    assert given_up(key) is None
    assert start_once(NAME, {}, key) is not None


def test_what_a_person_cancelled_stays_cancelled(key: str) -> None:
    become(start_once(NAME, {}, key), Cancelled(message="not now"))
    assert start_once(NAME, {}, key) is None
    assert "not now" in str(given_up(key))


def test_runs_of_a_killed_worker_are_marked_crashed(key: str) -> None:
    run = start_once(NAME, {}, key)
    become(run, Running())
    assert run is not None
    assert run.name in crash_leftovers()
    found = find(f"{key}:1")
    assert found is not None
    assert found.state is not None
    assert found.state.is_crashed()
    assert crash_leftovers() == []
