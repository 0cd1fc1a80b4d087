"""What is tried again, when, and what is not: from what became of the runs before."""

from __future__ import annotations

from typing import Any

import pytest
from prefect import State, flow

from evaluation.endpoints import EndpointError
from flows.attempts import (
    INTERRUPTED,
    KILLED,
    LONGEST_WAIT_SECONDS,
    TRIES,
    kind_of,
    standing,
)
from registry.errors import FolderError, StoreError

DAY = 24 * 3600.0
SAYS = "Flow run encountered an exception: "


def run(type: str, message: str = "", *, at: float = 0.0, under: str = "now") -> dict[str, Any]:
    return {"name": "otter", "type": type, "message": message, "at": at, "under": under}


AWAY = SAYS + "StoreError: http://127.0.0.1:1 does not answer"
FAILED = SAYS + "RuntimeError: the step distil ended with code 1"
REFUSED = SAYS + "FolderError: /targets/2 holds no model"


@pytest.mark.parametrize(
    ("runs", "word", "number"),
    [
        ([], "due", 1),
        ([run("RUNNING")], "alive", 1),
        ([run("PAUSED")], "alive", 1),
        ([run("")], "alive", 1),
        ([run("COMPLETED")], "done", 1),
        ([run("CANCELLED", "not now")], "cancelled", 1),
        ([run("CRASHED", KILLED)] * 40, "due", 41),
        ([run("CANCELLED", INTERRUPTED)] * 40, "due", 41),
        ([run("FAILED", FAILED)] * (TRIES - 1), "due", TRIES),
        ([run("FAILED", FAILED)] * TRIES, "given up", TRIES),
        ([run("CRASHED", "Process exited with status code: -9")] * TRIES, "given up", TRIES),
        ([run("FAILED", REFUSED)], "given up", 1),
        ([*[run("FAILED", FAILED)] * TRIES, run("COMPLETED")], "done", TRIES + 1),
        ([run("FAILED", FAILED, under="before")] * TRIES, "due", TRIES + 1),
        ([run("FAILED", REFUSED, under="before")], "due", 2),
    ],
)
def test_how_a_piece_of_work_stands_follows_from_its_runs(
    runs: list[dict[str, Any]], word: str, number: int
) -> None:
    assert standing(runs, now=DAY, under="now")[:2] == (word, number)


def test_an_outage_is_no_try_however_long_it_lasts_and_is_waited_out_longer_and_longer() -> None:
    waited, at, runs = [], 0.0, []
    while at < DAY:
        runs.append(run("FAILED", AWAY, at=at))
        seconds = next(s for s in range(0, 7200, 30) if due(runs, at + s))
        waited.append(seconds)
        at += seconds
    assert waited[:6] == [60, 120, 240, 480, 960, LONGEST_WAIT_SECONDS]
    assert set(waited[5:]) == {LONGEST_WAIT_SECONDS}


def due(runs: list[dict[str, Any]], now: float) -> bool:
    word = standing(runs, now=now, under="now")[0]
    assert word in ("due", "waits")
    return word == "due"


def test_an_outage_between_leaves_the_failures_counted_and_starts_its_waits_anew() -> None:
    mixed = [run("FAILED", FAILED), run("FAILED", AWAY), run("FAILED", FAILED)]
    again = [*mixed, run("FAILED", AWAY)]
    assert standing(again, now=59.0, under="now")[0] == "waits"
    assert standing(again, now=60.0, under="now")[0] == "due"
    assert standing([*again, run("FAILED", FAILED)], now=DAY, under="now")[0] == "given up"


def test_a_clock_that_was_put_back_makes_nothing_wait_longer() -> None:
    assert due([run("FAILED", AWAY, at=DAY)], 0.0)


def test_a_repair_is_tried_at_once_also_during_a_wait() -> None:
    assert standing([run("FAILED", AWAY, under="before")], now=1.0, under="now")[0] == "due"


FAULTS: list[tuple[Exception, str]] = [
    (StoreError("http://127.0.0.1:1 does not answer"), "outage"),
    (StoreError("pinning a: the registry at http://h:1 refused: no such alias"), "failed"),
    (EndpointError("the trial server did not answer"), "outage"),
    (OSError(28, "No space left on device"), "outage"),
    (ConnectionRefusedError(111, "Connection refused"), "outage"),
    (FileNotFoundError(2, "No such file or directory"), "failed"),
    (ValueError("no release 1234 is registered"), "refused"),
    (FolderError("holds no model"), "refused"),
    (RuntimeError("the step distil ended with code 1"), "failed"),
]


@pytest.mark.usefixtures("prefect_server")
@pytest.mark.parametrize(("fault", "kind"), FAULTS, ids=[repr(fault) for fault, _ in FAULTS])
def test_what_the_installed_prefect_says_of_an_exception_is_understood(
    fault: Exception, kind: str
) -> None:
    @flow(name="breaks")
    def breaks() -> None:
        raise fault

    state: State[None] = breaks(return_state=True)
    assert kind_of(run(state.type.value, str(state.message))) == kind


def test_what_prefect_says_when_its_own_server_is_away_is_an_outage() -> None:
    message = "Request to http://127.0.0.1:4200/api/flow_runs/ failed: httpx.ConnectError."
    assert kind_of(run("CRASHED", message)) == "outage"
