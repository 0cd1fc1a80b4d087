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
from pathlib import Path

from prefect import serve

from flows.bounds import WORKER
from flows.deployments import deployments, remove_gone
from flows.hurrying import hurry_looks
from flows.line import settings
from flows.runs import STARTED, crash_leftovers, drop_missed, start

WATCH_SECONDS = 60.0  # between two reconciles; whoever releases something hurries the next one
AT_ONCE = 9  # flow runs side by side: one of them heavy, the light ones are over soon


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--watch-seconds", type=float, default=WATCH_SECONDS)
    parser.add_argument("--hurry", action=argparse.BooleanOptionalAction, default=True)
    arguments = parser.parse_args()
    os.environ["PACELINE_HOME"] = str(arguments.home.resolve())
    os.environ[STARTED] = str(time.time())
    os.environ[WORKER] = str(os.getpid())

    crashed, missed = crash_leftovers(), drop_missed("watch", "refresh")
    if crashed or missed:
        print(
            f"marked Crashed: {crashed or 'nothing'}; missed runs by the clock: {missed}",
            flush=True,
        )
    ended = threading.Event()
    hurrying = threading.Thread(
        target=hurry_looks,
        args=(arguments.home, lambda key: start("watch", {}, key)),
        kwargs={"ended": ended},
        name="hurrying",
        daemon=True,
    )
    if arguments.hurry:
        hurrying.start()
    made = deployments(settings(), arguments.watch_seconds)
    if gone := remove_gone(made):
        print(f"deployments that the configuration no longer has: {gone}", flush=True)
    try:
        serve(*made, limit=AT_ONCE)
    finally:
        ended.set()
        if arguments.hurry:
            hurrying.join()


if __name__ == "__main__":
    main()
