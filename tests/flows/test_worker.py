"""A home's worker: every flow has its deployment, and the watch flow runs by itself."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prefect.deployments.runner import RunnerDeployment

from flows import worker
from flows.bounds import WORKER
from flows.catalogue import HEAVY, LIGHT
from flows.runs import STARTED
from flows.whose import tag


@pytest.mark.parametrize(
    ("given", "seconds"), [((), 60), (("--watch-seconds", "5"), 5)], ids=["as shipped", "given"]
)
def test_the_watch_flow_runs_each_minute_and_the_others_when_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: tuple[str, ...], seconds: int
) -> None:
    served: dict[str, RunnerDeployment] = {}

    def serve(*deployments: RunnerDeployment, **rest: Any) -> None:
        served.update({str(made.name): made for made in deployments})
        assert all(tag() in made.tags for made in deployments)

    monkeypatch.setattr(worker, "serve", serve)
    monkeypatch.setattr(worker, "remove_gone", lambda made: [])
    monkeypatch.setattr(worker, "crash_leftovers", lambda: [])
    monkeypatch.setattr(worker, "drop_missed", lambda *names: 0)
    monkeypatch.setattr(sys, "argv", ["flows.worker", "--home", str(tmp_path), *given])
    for name in ("PACELINE_HOME", STARTED, WORKER):
        monkeypatch.setenv(name, "")  # so that what `main` sets is taken back
    worker.main()

    every = {
        name: [getattr(one.schedule, "interval", one) for one in made.schedules or ()]
        for name, made in served.items()
    }
    by_the_clock = {"watch": [timedelta(seconds=seconds)]}
    assert every == {name: by_the_clock.get(name, []) for name in (*LIGHT, *HEAVY)}
