"""`paceline bench loop`: how long the ring takes, and what it costs to turn it while nothing comes.

Toy models, real servers and worker: what is measured is the machinery, and of a real retrain only
what is beside the computing.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.output import Json, emit, figure, table

if TYPE_CHECKING:
    from cli.stack import Stack
    from monitoring.outbox import Outbox

STEPS = ("look", "regenerate", "distil", "evaluate", "gate", "register", "settle")
PAIRING = "toy"
LOOK_SECONDS = 0.05
MOST_SECONDS = 1800.0  # for the pair; on a quiet machine two minutes
CONFIGURATION = """
[pairings.toy]
target = "{target}"
[pairings.toy.recipe]
responses = 96
max_tokens = 24
draft_vocab = 256
epochs = 6
learning_rate = 0.003
[pairings.toy.measurement]
max_tokens = 16
[pairings.toy.policy]
prompts = 20
acceptance_floor = 0.0
forwards_over_ngram = 9.0
must_gain = []
speed_over_plain = 0.01
speed_elsewhere = 0.01
first_token_over_plain = 99.0
first_token_seconds = 9.0
p95_over_plain = 99.0
rouge_l_margin = 0.5
"""  # everything passes: a toy on a busy machine is to be promoted all the same


def loop(
    idle_seconds: Annotated[
        float, typer.Option(min=1.0, help="How long to watch the idle control plane.")
    ] = 600.0,
    as_json: Json = False,
) -> None:
    """Time the loop: from a release to its promoted pair by step, from an alarm to its answer by
    both ways, and the cost of standing by."""
    from cli.stack import Stack

    with tempfile.TemporaryDirectory() as folder, Stack(Path(folder) / "home", os.environ) as stack:
        prepare(stack, Path(folder))
        told = {"release": released(stack), "alarm": alarmed(stack)}
        told["idle"] = idle(stack, idle_seconds)
    emit(told, lines_of(told))


def prepare(stack: Stack, folder: Path) -> None:
    """A home with a toy pairing, and its servers."""
    from cli.demo_tiny import order, toy_prompts, write_toy
    from configuration.prompts import write_prompts

    target = write_toy(folder / "target", order(1))
    for name, count in (("train", 96), ("evaluation", 20)):
        write_prompts(stack.home / "prompts" / f"{name}.jsonl", toy_prompts(name, count))
    (stack.home / "paceline.toml").write_text(CONFIGURATION.format(target=target))
    stack.create_schemas()
    stack.start_mlflow()
    stack.start_prefect()


@contextmanager
def working(stack: Stack, *options: str) -> Iterator[None]:
    """A worker, which looks once at its start."""
    argv = [sys.executable, "-m", "flows.worker", "--home", str(stack.home), *options]
    with stack.child(
        "worker", argv, ready_url=None, extra={"PREFECT_RUNNER_SERVER_ENABLE": "false"}
    ):
        yield


def released(stack: Stack) -> dict[str, Any]:
    """Seconds from a release to its promoted pair, by step."""
    from flows.hurrying import hint
    from flows.line import work_folder
    from flows.steps import read_json
    from registry.fingerprint import fingerprint
    from registry.store import Store

    store, target = Store(stack.urls["mlflow"]), stack.home.parent / "target"
    with working(stack):
        until(lambda: looked(stack))
        begun = time.time()
        digest = fingerprint(target)
        store.register_release(PAIRING, target, digest)
        hint(stack.home, "release-1")
        work = work_folder(stack.home, PAIRING, digest.digest)
        until(lambda: store.champion(PAIRING) is not None)
        whole = time.time() - begun
        until(lambda: (work / "settle.done.json").exists())
    markers = {step: read_json(work / f"{step}.done.json") or {} for step in STEPS}
    seconds = {step: float(marker["seconds"]) for step, marker in markers.items()}
    return {"seconds": whole, "steps": seconds, "between": whole - sum(seconds.values())}


def alarmed(stack: Stack) -> dict[str, float]:
    """Seconds from an alarm to what was done about it: hurried, and by the schedule alone."""
    from monitoring.outbox import Outbox
    from registry.store import Store
    from speculation.records import Alarm

    champion = Store(stack.urls["mlflow"]).champion(PAIRING)
    assert champion is not None  # it was waited for
    outbox, told = Outbox(stack.home / "monitoring" / "outbox"), {}
    for way, options in (("event", ()), ("polling", ("--no-hurry",))):
        with working(stack, *options):
            time.sleep(1.0)
            until(lambda: looked(stack))
            now = time.time()
            outbox.put(
                Alarm(f"bench-{way}", champion.pair_id, champion.release, "mix_shift", way, now, 40)
            )
            until(partial(answered, outbox, f"bench-{way}"))
            told[way] = time.time() - now
    return told


def answered(outbox: Outbox, alarm_id: str) -> bool:
    return outbox.response(alarm_id) is not None


def idle(stack: Stack, seconds: float) -> dict[str, float]:
    """CPU seconds and bytes of MLflow, Prefect and the worker while nothing comes."""
    from cli.used import cpu_seconds, memory_bytes

    with working(stack):
        until(lambda: looked(stack))
        pids = [child.pid for child in stack.children().values()]
        before, most, begun = cpu_seconds(pids), 0, time.monotonic()
        while (left := begun + seconds - time.monotonic()) > 0:
            most = max(most, memory_bytes(pids))
            time.sleep(min(10.0, left))
        took = time.monotonic() - begun
        return {
            "seconds": took,
            "cpu_seconds": cpu_seconds(pids) - before,
            "memory_bytes": float(max(most, memory_bytes(pids))),
        }


def looked(stack: Stack) -> bool:
    """Whether the worker's first look is over."""
    told = (stack.run / "worker.log").read_text(errors="replace")
    return "Finished in state Completed()" in told[told.rfind("being served") :]


def until(reached: Callable[[], bool]) -> None:
    ends = time.monotonic() + MOST_SECONDS
    while not reached():
        if time.monotonic() > ends:
            raise TimeoutError(f"it took more than {MOST_SECONDS:g} s")
        time.sleep(LOOK_SECONDS)


def lines_of(told: Mapping[str, Any]) -> list[str]:
    """The figures, for people."""
    release, alarm, rest = told["release"], told["alarm"], told["idle"]
    rows = [["from a release to its pair, seconds", ""]]
    rows += [[f"  {step}", figure(value, 1)] for step, value in release["steps"].items()]
    rows += [["  between the steps", figure(release["between"], 1)]]
    rows += [["  in all", figure(release["seconds"], 1)]]
    rows += [["from an alarm to its answer, seconds", ""]]
    rows += [[f"  {way}", figure(value, 1)] for way, value in alarm.items()]
    rows += [[f"{rest['seconds'] / 60:.1f} idle minutes", ""]]
    rows += [["  CPU seconds", figure(rest["cpu_seconds"], 1)]]
    rows += [["  memory, MB", figure(rest["memory_bytes"] / 1e6, 0)]]
    return table(rows)
