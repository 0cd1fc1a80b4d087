"""The command `demo`: the whole loop, once, on a real language model.

A target is released, its pair is judged and served; the target is fine-tuned and released again,
the flows make it a new draft, and the running server takes the new pair while it answers. Killed at
any moment, the same command goes on.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.demo_needs import check_installed, check_space
from cli.demo_story import JUDGING, JUDGING_TINY
from cli.exits import Exit, exit_of
from cli.home import DEFAULT_HOME, HomeFolder
from cli.output import Json, emit, figure, progress_bars

if TYPE_CHECKING:
    from cli.demo_story import Story

NO_SWAP = {"requests_in_flight": 0, "failed": 0, "requests": 0, "seen": False, "faults": []}
CHECK_SECONDS = 5.0  # between two looks at servers that are left up


def demo(
    home: HomeFolder = DEFAULT_HOME,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|NAME",
            help="A model folder or a model's name on the Hugging Face hub; left out, "
            "SmolLM2-135M-Instruct. With a target of your own, first draft and LoRA are trained "
            "here, which takes much longer.",
        ),
    ] = None,
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Train the first draft too.")
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the servers up at the end, until Ctrl-C.")
    ] = False,
    prompts: Annotated[
        int | None,
        typer.Option(
            min=20,
            help=f"Prompts that judge a pair; left out, {JUDGING}, and {JUDGING_TINY} with --tiny.",
        ),
    ] = None,
    tiny: Annotated[
        bool,
        typer.Option("--tiny", help="Toy models made on the spot: minutes, and no real figures."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Run the whole loop on CPU: release, draft, gate, serve; fine-tune, retrain, gate, swap.

    Everything embedded lives under the home folder: MLflow, Prefect, a flow worker, the speculative
    server and a monitor, all on loopback. Stopped at any moment, even killed, the same command goes
    on rather than starts over. Exit code 0 when the new pair passed the gate and was swapped in, 1
    when it failed or was not promoted, 3 when the measurement could not tell.
    """
    check_installed()
    from cli.demo_steps import environment, prepare
    from cli.stack import Stack

    chosen = {"target": target, "from_scratch": from_scratch, "prompts": prompts, "tiny": tiny}
    story = _story(home, target, from_scratch=from_scratch, prompts=prompts, tiny=tiny)
    check_space(home, target)
    with Stack(home, os.environ) as stack:
        _same_demo(home, chosen)
        told = _finished(home)
        if told is not None and not keep:
            _say(f"the demo in {home} is finished; delete that folder to run it anew", {})
            raise typer.Exit(_end(home, told))
        if stack.ended:
            _say(f"ended what a killed run left behind: {', '.join(stack.ended)}", {})
        environment(stack)  # before any library is loaded
        warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
        _say("preparing the target and the prompts", {"step": "prepare"})
        seconds: dict[str, float] = {}
        with _timed(stack.home, seconds, "prepare"):
            prepare(stack.home, story)
        record = _tell(stack.home, story, stack, seconds)
        code = _end(stack.home, record)
        if keep:
            _keep(stack)
    raise typer.Exit(code)


def _tell(home: Path, story: Story, stack: Any, seconds: dict[str, float]) -> dict[str, Any]:
    """The story, in order; what it came to, as in demo.json."""
    from cli import demo_steps as steps
    from cli.demo_table import demo_rows
    from flows.steps import once

    with _timed(home, seconds, "start"):
        _say("starting MLflow, Prefect and a flow worker", {"step": "start"})
        stack.create_schemas()
        stack.start_mlflow()
        stack.start_prefect()
        steps.environment(stack)
        os.environ["FLOWS_WORKER_STARTED"] = str(time.time())
        stack.start_worker()
        _say(f"MLflow {stack.urls['mlflow']} · Prefect {stack.urls['prefect']}", dict(stack.urls))
    with progress_bars() as progress, _live() as live:
        told = steps.Demo(home, story, stack, _say, progress, live)
        with _timed(home, seconds, "release_1"):
            first = steps.release(told, 1, home / "targets" / "release-1")
            _say("release 1 is out: the watch flow sees it and has its pair judged", first)
            outcome = steps.make_pair(told, first)
        assert outcome is not None
        before = steps.measured(steps.folder_of(told, first)) or []
        if not outcome["promoted"]:  # nothing to serve
            rows = demo_rows(before, None)
            statement = f"release 1: {outcome['statement']}"
            return _noted(home, {**outcome, "statement": statement}, rows, NO_SWAP, seconds)
        with _timed(home, seconds, "traffic_1"):
            steps.serve(told)
            figures = steps.traffic(told, first, "1")
            _say(f"in all {_traffic_text(figures)}", {"step": "traffic", **figures})

        with _timed(home, seconds, "release_2"):
            folder = once(
                told.marks,
                "make-release-2",
                {"first": first["release"]},
                lambda: {"folder": str(_second(home, story, first, stack))},
            )
            second = steps.release(told, 2, Path(folder["folder"]))
            _say("release 2 is out: the same target, fine-tuned", second)
        work = steps.folder_of(told, second)
        with _timed(home, seconds, "retrain"):
            steps.make_pair(told, second, reached=lambda: (work / "gate.done.json").exists())
        with _timed(home, seconds, "swap"):
            ended = steps.swap(told, second)
        outcome = ended["outcome"]
        if outcome["promoted"]:
            with _timed(home, seconds, "traffic_2"):
                figures = steps.traffic(told, second, "2")
                _say(f"in all {_traffic_text(figures)}", {"step": "traffic", **figures})
    with _timed(home, seconds, "end"):
        rows = demo_rows(before, steps.measured(work))
        steps.picture(told, second, outcome["version"])
    return _noted(home, outcome, rows, ended["swap"] or NO_SWAP, seconds)


def _noted(
    home: Path,
    outcome: Mapping[str, Any],
    rows: list[dict[str, Any]],
    swap: Mapping[str, Any],
    seconds: Mapping[str, float],
) -> dict[str, Any]:
    """What is told at the end, kept as demo.json."""
    from flows.steps import write_json

    record = {
        "verdict": outcome["phase"],
        "promoted": outcome["promoted"],
        "statement": outcome["statement"],
        "rows": rows,
        "swap": dict(swap),
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
    }
    write_json(home / "demo.json", record)
    return record


def _end(home: Path, record: Mapping[str, Any]) -> Exit:
    """The table, the swap and the verdict; the exit code."""
    from cli.demo_table import demo_text

    said = [_swap_text(record["swap"]), str(record["statement"])]
    emit(record, ["", *demo_text(record["rows"]), "", *said])
    files = [path for path in (home / "demo.json", home / "acceptance.png") if path.exists()]
    _say(f"the figures: {', '.join(map(str, files))}", {})
    return exit_of(str(record["verdict"]), bool(record.get("promoted", True)))


def _finished(home: Path) -> dict[str, Any] | None:
    from flows.steps import read_json

    return read_json(home / "demo.json")


def _story(
    home: Path, target: str | None, *, from_scratch: bool, prompts: int | None, tiny: bool
) -> Story:
    if tiny:
        from cli.demo_tiny import tiny_story

        if target is not None:
            raise ValueError("got --tiny with --target: the toy brings its own target; drop one")
        return tiny_story(prompts=prompts)
    from cli.demo_real import real_story

    return real_story(home, target, from_scratch=from_scratch, prompts=prompts)


def _same_demo(home: Path, chosen: Mapping[str, Any]) -> None:
    """A home tells one story: other options would mix two."""
    from flows.steps import read_json, write_json

    path = home / "demo" / "options.json"
    before = read_json(path)
    begun = (home / "targets").is_dir()  # or what was given before could not be used
    if before is not None and before != dict(chosen) and begun:
        raise ValueError(
            f"the demo in {home} was begun with {before}, wanted the same options: give them, "
            "delete that folder, or choose another with --home"
        )
    write_json(path, chosen)


def _second(home: Path, story: Story, first: Mapping[str, Any], stack: Any) -> Path:
    def run(name: str, command: Sequence[str]) -> None:
        stack.finish(name, command, sys.stderr)

    return story.second_release(Path(first["folder"]), home / "targets" / "release-2", run)


@contextmanager
def _timed(home: Path, seconds: dict[str, float], step: str) -> Iterator[None]:
    """Seconds of a step, summed over the runs that it took."""
    from flows.steps import read_json, write_json

    path = home / "demo" / "seconds.json"
    before = read_json(path) or {}
    begun = time.monotonic()
    try:
        yield
    finally:
        seconds[step] = float(before.get(step, 0.0)) + time.monotonic() - begun
        write_json(path, {**before, step: seconds[step]})


@contextmanager
def _live() -> Iterator[Any]:
    """A line with the figures of traffic as they come, on stderr."""
    from rich.console import Console

    console = Console(stderr=True)

    def show(figures: Mapping[str, Any]) -> None:
        console.print(_traffic_text(figures), highlight=False, soft_wrap=True)

    yield show


def _traffic_text(figures: Mapping[str, Any]) -> str:
    requests = figures["requests"]
    return (
        f"{requests} request{'s' * (requests != 1)}: acceptance {figure(figures['alpha_hat'])}, "
        f"{figures['forwards_per_request']:.1f} forwards a request against "
        f"{figures['plain_forwards_per_request']:.1f} plain, "
        f"{figures['tokens_per_second']:.1f} tokens/s against "
        f"{figures['plain_tokens_per_second']:.1f} plain ({figures['speedup']:.2f} x)"
    )


def _swap_text(swap: Mapping[str, Any]) -> str:
    if not swap.get("seen", False):
        return "no swap was seen under load"
    return (
        f"swapped with {swap['requests_in_flight']} requests in flight; {swap['failed']} of "
        f"{swap['requests']} requests failed"
    )


def _keep(stack: Any) -> None:
    """Leave the servers up until Ctrl-C."""
    for name, url in stack.urls.items():
        _say(f"{name}: {url}", {name: url})
    _say("the servers stay up; end them with Ctrl-C", {})
    try:
        while True:
            time.sleep(CHECK_SECONDS)
            stack.check()
    except KeyboardInterrupt:
        _say("ending the servers", {})


def _say(sentence: str, record: Mapping[str, Any]) -> None:
    """News for people; with --json one object a line."""
    emit({"news": sentence, **record}, sentence)
