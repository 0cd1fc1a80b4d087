"""Runs the flows of one home: creates their deployments, tidies what a killed worker left, waits.

    python -m flows.worker --home paceline-home

For `paceline demo` and `paceline worker`, which see that no second worker of this home lives, and
set what Prefect reads when it is loaded. Talks to the Prefect server that PREFECT_API_URL names.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from prefect import serve
from prefect.deployments.runner import RunnerDeployment
from prefect.flows import Flow
from prefect.types.entrypoint import EntrypointType

from flows.bounds import WORKER
from flows.catalogue import HEAVY, LIGHT, flow_of
from flows.hurrying import hurry_looks
from flows.runs import STARTED, crash_leftovers, drop_missed, start
from flows.whose import deployment, tag

WATCH_SECONDS = 60.0  # between two reconciles; whoever releases something hurries the next one
AT_ONCE = 9  # flow runs side by side: one of them heavy, the light ones are over soon


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--watch-seconds", type=float, default=WATCH_SECONDS)
    arguments = parser.parse_args()
    os.environ["PACELINE_HOME"] = str(arguments.home.resolve())
    os.environ[STARTED] = str(time.time())
    os.environ[WORKER] = str(os.getpid())

    crashed, missed = crash_leftovers(), drop_missed("watch")
    if crashed or missed:
        print(f"marked Crashed: {crashed or 'nothing'}; missed runs of watch: {missed}", flush=True)
    ended = threading.Event()
    hurrying = threading.Thread(
        target=hurry_looks,
        args=(arguments.home, lambda key: start("watch", {}, key)),
        kwargs={"ended": ended},
        name="hurrying",
        daemon=True,
    )
    hurrying.start()
    every = {"watch": timedelta(seconds=arguments.watch_seconds)}
    try:
        serve(
            *(_deployment(flow_of(name), every.get(name)) for name in (*LIGHT, *HEAVY)),
            limit=AT_ONCE,
        )
    finally:
        ended.set()
        hurrying.join()


def _deployment(flow: Flow[Any, Any], interval: timedelta | None = None) -> RunnerDeployment:
    """The flow under its own name, found by its module: a file entrypoint would put flows/ itself
    on the path, where a file named like a library would hide it."""
    made = flow.to_deployment(
        deployment(flow.name),
        interval=interval,
        tags=[tag()],
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    assert isinstance(made, RunnerDeployment)  # a coroutine only in async code
    return made


if __name__ == "__main__":
    main()
