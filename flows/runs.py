"""What Prefect knows of our flow runs: started by key, found again by key, tidied after a kill.

A key names a piece of work for ever, so asking for it twice starts it once. Knows Prefect's client
and touches nothing on the server but what carries this home's tag; knows nothing of what the flows
do.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from time import time as clock
from typing import Any

from prefect import get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterIdempotencyKey,
    FlowRunFilterState,
    FlowRunFilterStateType,
    FlowRunFilterTags,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.deployments import run_deployment
from prefect.states import Cancelled, Crashed

from flows.attempts import KILLED, Word, standing
from flows.whose import deployment, own_key, tag

ALIVE = [StateType.RUNNING, StateType.PENDING, StateType.CANCELLING]
STARTED = "FLOWS_WORKER_STARTED"  # environment: when this worker began, seconds since the epoch
UNDER = "paceline.under:"  # tag: the worker and the configuration that a run was started under
PAGE = 200  # runs in one answer; the server gives no more
Started = tuple[FlowRun | None, Word, str]


def start(
    flow: str, parameters: Mapping[str, Any], key: str | None = None, *, tags: Sequence[str] = ()
) -> FlowRun:
    """Start a flow by its deployment; a used key gives the run that it began."""
    run = run_deployment(
        f"{flow}/{deployment(flow)}",
        parameters=dict(parameters),
        timeout=0,
        as_subflow=False,
        idempotency_key=None if key is None else own_key(key),
        tags=[tag(), *tags],
    )
    assert isinstance(run, FlowRun)  # a coroutine only where this is called from async code
    return run


def start_once(flow: str, parameters: Mapping[str, Any], key: str, *, inputs: str = "") -> Started:
    """See that the work called `key` is under way: start it where it is not, or was cut short.

    Gives its run, how it stands, and why. A run that ended with its worker, or in an outage, is
    followed by another; so is one that failed by itself, a few times in all, until the worker is
    started again or `inputs`, a name for what the work follows from, is another. No run is given
    where none is to be started: it is done, was cancelled by a person, waits, or failed too often.
    """
    word, number, why, last = _stands(key, inputs)
    if word == "due":
        tags = [UNDER + (_under(inputs) or "nobody")]
        return start(flow, parameters, f"{key}:{number}", tags=tags), "alive", why
    return (last if word == "alive" else None), word, why


def stands(key: str, *, inputs: str = "") -> tuple[Word, str]:
    """How the work called `key` stands, and why. Starts nothing."""
    word, _, why, _ = _stands(key, inputs)
    return word, why


def last_run(key: str) -> FlowRun | None:
    """The last run that the work called `key` had."""
    return _stands(key, None)[3]


def given_up(key: str) -> str | None:
    """Why nobody works on `key` any more although it is not done; None while somebody will.

    For whoever looks on, and is no worker: one that starts anew tries again what was given up
    before it began.
    """
    word, _, why, last = _stands(key, None)
    return why if word == "cancelled" or (word == "given up" and not _earlier(last)) else None


def hurry(key: str) -> None:
    """Have the next reconcile run now, where it would start a run for `key`. For whoever looks on.

    Asked once for each attempt and worker: the schedule does the rest.
    """
    word, number, _, last = _stands(key, None)
    if word == "due" or (word == "given up" and _earlier(last)):
        start("watch", {}, f"hurry:{key}:{number}:{os.environ.get(STARTED)}")


def _earlier(run: FlowRun | None) -> bool:
    """Whether a run ended before the worker of now began."""
    began = float(os.environ.get(STARTED, 0.0))
    return run is None or run.state is None or run.state.timestamp.timestamp() < began


def under_way(*flows: str) -> list[FlowRun]:
    """This home's runs of these flows that have begun or are about to. A paused one waits for a
    person and computes nothing."""
    states = [*ALIVE, StateType.SCHEDULED]
    with get_client(sync_client=True) as client:
        return _all(client, states, FlowFilter(name=FlowFilterName(any_=list(flows))))


def paused(*flows: str) -> list[FlowRun]:
    """This home's runs of these flows that wait for a person."""
    with get_client(sync_client=True) as client:
        return _all(client, [StateType.PAUSED], FlowFilter(name=FlowFilterName(any_=list(flows))))


def cancel(run: FlowRun, why: str) -> None:
    """End a run that waits: nobody has to answer it any more."""
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(run.id, Cancelled(message=why), force=True)


def find(key: str) -> FlowRun | None:
    """The run that was started with this idempotency key."""
    found = _by_key([key])
    return found.get(key)


def crash_leftovers() -> list[str]:
    """Mark the runs of a killed worker Crashed; their names. Only where no other worker of this
    home lives. Prefect itself would show them as Running for ever."""
    with get_client(sync_client=True) as client:
        runs = _all(client, ALIVE)
        for run in runs:
            client.set_flow_run_state(run.id, Crashed(message=KILLED), force=True)
    return [run.name for run in runs]


def drop_missed(*flows: str) -> int:
    """Delete the scheduled runs of these flows that nobody was there to start; how many."""
    of = FlowFilter(name=FlowFilterName(any_=list(flows)))
    with get_client(sync_client=True) as client:
        missed = [
            run
            for run in _all(client, [StateType.SCHEDULED], of)
            if run.auto_scheduled
            and run.expected_start_time is not None  # a hundred of the future are there as well
            and run.expected_start_time.timestamp() <= clock()
        ]
        for run in missed:
            client.delete_flow_run(run.id)
    return len(missed)


def _under(inputs: str | None) -> str | None:
    """What runs count under now; None where nobody asks for a worker."""
    worker = None if inputs is None else os.environ.get(STARTED)
    return worker and hashlib.sha256(f"{worker} {inputs}".encode()).hexdigest()[:12]


def _stands(key: str, inputs: str | None) -> tuple[Word, int, str, FlowRun | None]:
    runs: list[FlowRun] = []
    while True:  # the attempts are numbered without a gap
        first = len(runs) + 1
        keys = [f"{key}:{number}" for number in range(first, first + PAGE)]
        found = _by_key(keys)
        runs += [found[one] for one in keys if one in found]
        if len(found) < PAGE:
            break
    word, number, why = standing([_plain(run) for run in runs], now=clock(), under=_under(inputs))
    return word, number, why, (runs[-1] if runs else None)


def _plain(run: FlowRun) -> dict[str, Any]:
    state = run.state
    under = (one.removeprefix(UNDER) for one in run.tags if one.startswith(UNDER))
    return {
        "name": run.name,
        "type": "" if state is None else state.type.value,
        "message": "" if state is None else state.message,
        "at": 0.0 if state is None else state.timestamp.timestamp(),
        "under": next(under, ""),
    }


def _by_key(keys: Sequence[str]) -> dict[str, FlowRun]:
    own = {own_key(key): key for key in keys}
    wanted = FlowRunFilter(idempotency_key=FlowRunFilterIdempotencyKey(any_=list(own)))
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs(flow_run_filter=wanted, limit=PAGE)
    return {own[str(run.idempotency_key)]: run for run in runs}


def _all(
    client: SyncPrefectClient, states: Sequence[StateType], of: FlowFilter | None = None
) -> list[FlowRun]:
    """This home's runs in these states, however many."""
    wanted = FlowRunFilter(
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=list(states))),
        tags=FlowRunFilterTags(all_=[tag()]),
    )
    found: list[FlowRun] = []
    while True:
        page = client.read_flow_runs(
            flow_filter=of, flow_run_filter=wanted, limit=PAGE, offset=len(found)
        )
        found += page
        if len(page) < PAGE:
            return found
