"""What Prefect knows of our flow runs: started by key, found again by key, tidied after a kill.

A key names a piece of work for ever, so asking for it twice starts it once. Knows Prefect's client;
knows nothing of what the flows do.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from prefect import get_client
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterName,
    FlowRunFilter,
    FlowRunFilterIdempotencyKey,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.deployments import run_deployment
from prefect.states import Crashed

ALIVE = [StateType.RUNNING, StateType.PENDING, StateType.CANCELLING]
KILLED = "The worker was killed while this ran."
INTERRUPTED = "Runner is shutting down."  # what Prefect's runner says when it is ended with SIGTERM
TRIES = 3  # runs that failed by themselves, under one worker; being killed with it is not a try
STARTED = "FLOWS_WORKER_STARTED"  # environment: when this worker began, seconds since the epoch


def start(name: str, parameters: Mapping[str, Any], key: str | None = None) -> FlowRun:
    """Start the deployment `name` ("flow/deployment"); a used key gives the run that it began."""
    run = run_deployment(
        name, parameters=dict(parameters), timeout=0, as_subflow=False, idempotency_key=key
    )
    assert isinstance(run, FlowRun)  # a coroutine only where this is called from async code
    return run


def start_once(name: str, parameters: Mapping[str, Any], key: str) -> FlowRun | None:
    """See that the work called `key` is under way: start it where it is not, or was cut short.

    A run that ended with its worker is followed by another; one that failed by itself is, `TRIES`
    times in all under one worker, so that starting again after a repair tries again. None when
    there is nothing more to start: it is done, was cancelled by a person, or failed too often.
    """
    last, attempt = _attempts(key)
    if attempt is None:
        return last if last is not None and not _final(last) else None
    return start(name, parameters, f"{key}:{attempt}")


def given_up(key: str) -> str | None:
    """Why nobody works on `key` any more although it is not done; None while somebody will."""
    last, attempt = _attempts(key)
    if attempt is not None or last is None or not _final(last):
        return None
    assert last.state is not None
    if last.state.is_completed():
        return None
    return f"the run {last.name} is {last.state.name}: {last.state.message}"


def hurry(key: str) -> None:
    """Have the next reconcile run now, where it would start a run for `key`.

    Asked once for each attempt and worker: the schedule does the rest.
    """
    attempt = _attempts(key)[1]
    if attempt is not None:
        start("watch/watch", {}, f"hurry:{key}:{attempt}:{os.environ.get(STARTED)}")


def _attempts(key: str) -> tuple[FlowRun | None, int | None]:
    """The last run for `key`, and the number of the attempt that is due, if one is."""
    worker_started = float(os.environ.get(STARTED, 0.0))
    last: FlowRun | None = None
    failed, attempt = 0, 1
    while (run := find(f"{key}:{attempt}")) is not None:
        last, state = run, run.state
        if state is None or not state.is_final():
            return last, None
        ended_with_worker = state.message in (KILLED, INTERRUPTED)
        if not (ended_with_worker or state.is_failed() or state.is_crashed()):
            return last, None
        failed += not ended_with_worker and state.timestamp.timestamp() >= worker_started
        if failed >= TRIES:
            return last, None
        attempt += 1
    return last, attempt


def _final(run: FlowRun) -> bool:
    return run.state is not None and run.state.is_final()


def find(key: str) -> FlowRun | None:
    """The run that was started with this idempotency key."""
    with get_client(sync_client=True) as client:
        wanted = FlowRunFilter(idempotency_key=FlowRunFilterIdempotencyKey(any_=[key]))
        runs = client.read_flow_runs(flow_run_filter=wanted, limit=1)
    return runs[0] if runs else None


def crash_leftovers() -> list[str]:
    """Mark the runs of a killed worker Crashed; their names. Only where no other worker lives.

    Prefect itself would show them as Running for ever.
    """
    with get_client(sync_client=True) as client:
        alive = FlowRunFilterState(type=FlowRunFilterStateType(any_=ALIVE))
        runs = client.read_flow_runs(flow_run_filter=FlowRunFilter(state=alive))
        for run in runs:
            client.set_flow_run_state(run.id, Crashed(message=KILLED), force=True)
    return [run.name for run in runs]


def drop_missed(deployment: str) -> int:
    """Delete the scheduled runs of a deployment that nobody was there to start; how many."""
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs(
            deployment_filter=DeploymentFilter(name=DeploymentFilterName(any_=[deployment])),
            flow_run_filter=FlowRunFilter(
                state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.SCHEDULED]))
            ),
        )
        missed = [run for run in runs if run.auto_scheduled]
        for run in missed:
            client.delete_flow_run(run.id)
    return len(missed)
