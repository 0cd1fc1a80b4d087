"""Waits for a retrain that a worker does, and shows how far it is.

What the flow leaves on disk is shown: a progress file while a step runs, a marker when it is done.
The registry has the last word on how it ended; Prefect is asked whether somebody still works on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from cli.output import Progress
from flows.steps import PROGRESS, finished, read_json

STEPS = ("look", "regenerate", "distil", "evaluate", "gate", "register", "settle")
POLL_SECONDS = 0.25
ASK_SECONDS = 5.0  # between two questions to Prefect


class RetrainFailedError(RuntimeError):
    """The flow gave up; the message holds its reason."""


def wait_for_outcome(
    work: Path,
    key: Callable[[], str],  # of the work, as the watch flow calls it now
    *,
    told: set[str],  # the steps whose end is known already; what ends here is added
    done: Callable[[str, Mapping[str, Any]], None],  # a step ended, with what it gave
    progress: Progress,
    hurry: Callable[[], None],
    concluded: Callable[[], dict[str, Any] | None],  # what the registry says of its end
    check: Callable[[], None],  # raises where nobody is left to do the work
    reached: Callable[[], bool] = lambda: False,  # stop waiting earlier
) -> dict[str, Any] | None:
    """The outcome of the retrain in `work`; None when `reached` said to stop before it.

    Raises RetrainFailedError when the flow has given up, and what `check` raises.
    """
    from flows.runs import given_up

    asked = 0.0
    shown: float | None = None
    while True:
        for step in STEPS:
            if step not in told and (result := finished(work, step)) is not None:
                told.add(step)
                done(step, result)
        outcome = finished(work, "settle")
        if outcome is not None:
            return outcome
        if reached():
            return None
        check()
        now = read_json(work / PROGRESS)
        if now is not None and now["step"] not in told and now["updated"] != shown:
            shown = now["updated"]
            progress(int(now["done"]), int(now["total"]), f"{now['step']}: {_what(now)}")
        if time.monotonic() - asked > ASK_SECONDS:
            asked = time.monotonic()
            with suppress(httpx.HTTPError):  # a server that is busy is asked again
                reason = given_up(key())
                if reason is not None:
                    raise RetrainFailedError(reason)
                hurry()
            ended = concluded()
            if ended is not None:
                return finished(work, "settle") or ended
        time.sleep(POLL_SECONDS)


def _what(now: Mapping[str, Any]) -> str:
    """Arms come and go while a measurement runs; its bar is one."""
    return "measuring" if now["step"] in ("look", "evaluate") else str(now["what"])
