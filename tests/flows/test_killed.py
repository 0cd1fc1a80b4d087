"""A retrain that is killed before, inside and after each step's commit ends with one of everything.

Toy models, real MLflow and Prefect. The process that does the step gets SIGKILL at the very call;
at some moments it is the run of a real worker, which is killed with it and started again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.bench_loop import CONFIGURATION
from cli.demo_tiny import order, toy_prompts, write_toy
from cli.stack import Stack
from configuration.prompts import write_prompts

KILLING = Path(__file__).parent / "killing"
SECONDS = 600.0  # for a moment to come, on a busy machine
MOMENTS = (
    *("look:before", "look:after"),
    *("regenerate:inside", "regenerate:before", "regenerate:after"),
    *("distil:inside", "distil:before", "distil:after"),
    *("evaluate:inside", "evaluate:before", "evaluate:after"),
    *("gate:before", "gate:after"),
    *("version:before", "version:after", "register:before", "register:after"),
    *("journal:before", "journal:after", "alias:before", "alias:after"),
    *("settle:before", "settle:after"),
)
BY_A_WORKER = ("regenerate:inside", "distil:before", "evaluate:before", "version:after")


def environ_of(stack: Stack, moment: str, flag: Path) -> dict[str, str]:
    return {
        **stack.environ(),
        **{"PYTHONPATH": f"{KILLING}:{Path.cwd()}", "KILL_AT": moment, "KILL_FLAG": str(flag)},
        "PREFECT_RUNNER_SERVER_ENABLE": "false",
    }


@contextmanager
def working(stack: Stack, moment: str, flag: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker whose flows are killed at that moment."""
    argv = [sys.executable, "-m", "flows.worker", "--home", str(stack.home)]
    with (
        (stack.run / "worker.log").open("ab") as log,
        subprocess.Popen(
            [*argv, "--watch-seconds", "30"],
            env=environ_of(stack, moment, flag),
            stdout=log,
            stderr=log,
            start_new_session=True,
        ) as worker,
    ):
        try:
            yield worker
        finally:
            os.killpg(worker.pid, signal.SIGKILL)


def until(reached: Callable[[], Any], worker: subprocess.Popen[bytes], stack: Stack) -> None:
    ends = time.monotonic() + SECONDS
    while not reached():
        assert worker.poll() is None, (stack.run / "worker.log").read_text()[-4000:]
        assert time.monotonic() < ends, (stack.run / "worker.log").read_text()[-4000:]
        time.sleep(0.1)


@pytest.mark.slow
def test_killed_at_every_commit_it_trains_registers_and_promotes_once(tmp_path: Path) -> None:
    from registry import journal
    from registry.fingerprint import fingerprint
    from registry.store import Store

    home = tmp_path / "home"
    target = write_toy(tmp_path / "target", order(1))
    for name, count in (("train", 96), ("evaluation", 20)):
        write_prompts(home / "prompts" / f"{name}.jsonl", toy_prompts(name, count))
    (home / "paceline.toml").write_text(CONFIGURATION.format(target=target))
    with Stack(home, os.environ) as stack:
        stack.create_schemas()
        store = Store(stack.start_mlflow())
        stack.start_prefect()
        release = store.register_release("toy", target, fingerprint(target))
        work = home / "work" / "toy" / release.digest[:12]
        missed = []
        for number, moment in enumerate(MOMENTS):
            flag = tmp_path / f"killed-{number}"
            if moment in BY_A_WORKER:
                with working(stack, moment, flag) as worker:
                    until(flag.exists, worker, stack)
            else:
                argv = [sys.executable, "-m", "flows.single", "toy", release.digest]
                argv += [str(tmp_path / "outcome.json")]
                with (stack.run / "single.log").open("ab") as log:
                    code = subprocess.run(
                        argv,
                        env=environ_of(stack, moment, flag),
                        stdout=log,
                        stderr=log,
                        timeout=SECONDS,
                        check=False,
                    ).returncode
                assert code == -signal.SIGKILL or not flag.exists()
            if not flag.exists():
                missed.append(moment)
        with working(stack, "", tmp_path / "never") as worker:
            until((work / "settle.done.json").exists, worker, stack)
            until(lambda: store.champion("toy") is not None, worker, stack)
        assert missed == [], "a moment that never came proves nothing"
        (pair,) = store.pairs("toy")
        assert pair.passed, pair.verdict
        champion = store.champion("toy")
        assert champion is not None
        assert champion.version == pair.version == 1
        assert [entry.version for entry in journal.read(store, "toy")] == [1]
    assert len(list(work.glob("distilled-*/"))) == 1
    assert len(list(work.glob("responses-*/"))) == 1
    assert len(list(work.glob("trial-*/report.json"))) == 1
