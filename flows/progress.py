"""How far a long step is, for people: a Prefect progress artifact, and a file that the command
line draws its bars from (one writer, any number of readers, no server in between)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact

from flows.steps import PROGRESS, write_json

FILE_SECONDS = 0.5  # between two writes of the file
ARTIFACT_SECONDS = 3.0  # between two calls of the server

Progress = Callable[[int, int, str], None]  # done, total, what is being done


def reporting(folder: Path, step: str) -> Progress:
    """A progress callback for `step` whose file lies in `folder`. Inside a task run only."""
    began: dict[str, tuple[float, int]] = {}  # what is done -> when, from where
    last = {"file": 0.0, "artifact": 0.0}
    artifacts: dict[str, UUID] = {}

    def report(done: int, total: int, what: str) -> None:
        now = time.time()
        new = what not in began
        started, first = began.setdefault(what, (now, done))
        ending = done >= total
        if new or ending or now - last["file"] >= FILE_SECONDS:
            last["file"] = now
            left = (now - started) / (done - first) * (total - done) if done > first else None
            write_json(
                folder / PROGRESS,
                {"step": step, "what": what, "done": done, "total": total}
                | {"started": started, "updated": now, "seconds_left": left},
            )
        if new or ending or now - last["artifact"] >= ARTIFACT_SECONDS:
            last["artifact"] = now
            percent = 100.0 * done / total if total else 100.0
            if what not in artifacts:
                key = f"{step}-progress"
                made = create_progress_artifact(progress=percent, key=key, description=what)
                assert isinstance(made, UUID)
                artifacts[what] = made
            else:
                update_progress_artifact(artifact_id=artifacts[what], progress=percent)

    return report
