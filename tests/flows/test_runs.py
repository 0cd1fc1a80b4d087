"""Work is started once by its key, and again only when it was cut short."""

from __future__ import annotations

import time
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest
from prefect import flow, get_client
from prefect.client.schemas.objects import FlowRun
from prefect.states import Cancelled, Completed, Crashed, Failed, Running

from flows import runs
from flows.attempts import INTERRUPTED, KILLED, TRIES
from flows.runs import STARTED, Started, crash_leftovers, drop_missed, find, given_up
from flows.whose import deployment, tag

pytestmark = pytest.mark.usefixtures("prefect_server")


@flow(name="work")
def work() -> None:
    """Never run here: only its runs' states matter."""


def deploy() -> None:
    with get_client(sync_client=True) as client:
        flow_id = client.create_flow_from_name("work")
        client.create_deployment(
            flow_id=flow_id, name=deployment("work"), entrypoint="tests.none.work", tags=[tag()]
        )


def start_once(key: str, *, inputs: str = "") -> FlowRun | None:
    return told(key, inputs=inputs)[0]


def told(key: str, *, inputs: str = "") -> Started:
    return runs.start_once("work", {}, key, inputs=inputs)


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setenv(STARTED, str(time.time() - 60))
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "home"))
    deploy()
    return f"work:{uuid4()}"


def become(run: FlowRun | None, state: object) -> None:
    assert run is not None
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(run.id, state, force=True)  # type: ignore[arg-type]  # any State


def test_work_that_is_under_way_is_not_started_again(key: str) -> None:
    first = start_once(key)
    again = start_once(key)
    assert first is not None
    assert again is not None
    assert again.id == first.id


def test_work_that_is_done_is_never_started_again(key: str) -> None:
    become(start_once(key), Completed())
    assert told(key)[:2] == (None, "done")
    assert given_up(key) is None


def test_a_run_that_ended_with_its_worker_is_followed_by_another_however_often(key: str) -> None:
    ids = set()
    for number in range(TRIES + 1):
        run = start_once(key)
        assert run is not None
        ids.add(run.id)
        become(run, Crashed(message=KILLED) if number % 2 else Cancelled(message=INTERRUPTED))
    assert len(ids) == TRIES + 1
    assert given_up(key) is None


def test_a_run_that_fails_by_itself_is_tried_so_often_and_then_given_up(key: str) -> None:
    for _ in range(TRIES):
        become(start_once(key), Failed(message="no such folder"))
    run, word, why = told(key)
    assert (run, word) == (None, "given up")
    assert "no such folder" in why
    assert given_up(key) == why


def test_another_configuration_tries_again_what_was_given_up_under_the_earlier_one(
    key: str,
) -> None:
    for _ in range(TRIES):
        become(start_once(key, inputs="wrong"), Failed(message="no such folder"))
    assert told(key, inputs="wrong")[1] == "given up"
    assert told(key, inputs="right")[1] == "alive"


def test_an_outage_of_minutes_uses_up_no_try(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    away: object = Failed(message="Flow run encountered an exception: StoreError: MLflow is away")
    become(start_once(key), away)
    for _ in range(TRIES):
        assert told(key)[1] == "waits", "and is asked each minute"
        assert given_up(key) is None
        with monkeypatch.context() as later:
            later.setattr(runs, "clock", lambda: time.time() + 1800)
            become(start_once(key), away)


def test_a_new_worker_tries_again_what_an_earlier_one_gave_up(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(TRIES):
        become(start_once(key), Failed(message="no such folder"))
    monkeypatch.setenv(STARTED, str(time.time() + 1))
    assert given_up(key) is None
    assert start_once(key) is not None


def test_whoever_looks_on_sees_what_was_given_up_whatever_it_was_started_under(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(TRIES):
        become(start_once(key, inputs="as configured"), Failed(message="no such folder"))
    monkeypatch.setenv(STARTED, str(time.time() - 30))  # the command's own, before its worker's
    assert "no such folder" in str(given_up(key))
    monkeypatch.delenv(STARTED)
    assert "no such folder" in str(given_up(key))


def test_what_a_person_cancelled_stays_cancelled(key: str) -> None:
    become(start_once(key), Cancelled(message="not now"))
    assert told(key)[:2] == (None, "cancelled")
    assert "not now" in str(given_up(key))


def test_runs_of_a_killed_worker_are_marked_crashed(key: str) -> None:
    run = start_once(key)
    become(run, Running())
    assert run is not None
    assert run.name in crash_leftovers()
    found = find(f"{key}:1")
    assert found is not None
    assert found.state is not None
    assert found.state.is_crashed()
    assert crash_leftovers() == []


def test_two_homes_on_one_server_touch_nothing_of_each_other(
    key: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PACELINE_PREFECT", "http://127.0.0.1:1/api")  # named, so it may be shared
    deploy()
    first = start_once(key)
    become(first, Running())
    with get_client(sync_client=True) as client:
        foreign = client.create_flow_run(work, state=Running())
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "other"))
    assert crash_leftovers() == []
    deploy()
    second = start_once(key)
    assert first is not None
    assert second is not None
    assert second.id != first.id, "the same key is another home's work"
    assert second.deployment_id != first.deployment_id
    become(second, Running())
    assert crash_leftovers() == [second.name]
    with get_client(sync_client=True) as client:
        states = [client.read_flow_run(run.id).state for run in (first, foreign)]
    assert all(state is not None and state.is_running() for state in states)


def test_of_what_the_clock_asked_for_only_the_past_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, deleted = datetime.now(UTC), list[int]()
    there = [
        SimpleNamespace(
            id=minutes, auto_scheduled=True, expected_start_time=now + timedelta(minutes=minutes)
        )
        for minutes in (-2, -1, 1, 2)
    ]
    client = SimpleNamespace(delete_flow_run=deleted.append)
    monkeypatch.setattr(runs, "get_client", lambda sync_client: nullcontext(client))
    monkeypatch.setattr(runs, "_all", lambda *_: there)
    assert drop_missed("work") == 2
    assert deleted == [-2, -1]


def test_what_was_asked_for_while_nobody_was_there_is_not_dropped(key: str) -> None:
    start_once(key)
    assert drop_missed("work") == 0
    assert find(f"{key}:1") is not None


def test_more_leftovers_than_one_answer_holds_are_all_marked(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "PAGE", 2)
    for number in range(5):
        become(start_once(f"{key}-{number}"), Running())
    assert len(crash_leftovers()) == 5
