"""The command `up`: everything of a home that is not somebody else's, kept running."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from cli.home import DEFAULT_HOME, HomeFolder, need_control, settings_of
from cli.output import Json, emit, machine, table
from configuration.settings import Settings

TURN_SECONDS = 0.5  # between two looks at the programs
TELL_SECONDS = 2.0  # between two writings of their state
NAMES = ("mlflow", "prefect", "worker", "server", "monitor")
STATE = "state.json"  # in home/run


def up(
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help=f"Only these of {', '.join(NAMES)}; may be repeated. Left out, all that there is "
            "something to do for.",
        ),
    ] = None,
    pairing: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The pairing to serve and to monitor; left out, the only one that is configured.",
        ),
    ] = None,
    home: HomeFolder = DEFAULT_HOME,
    as_json: Json = False,
) -> None:
    """Run the whole loop: MLflow, Prefect, the worker, the speculative server and its monitor.

    What paceline.toml names elsewhere is not started here. One that dies is started again, after a
    wait that grows to a minute; the others go on. Each has its log under run/ in the home. Stays
    until SIGTERM or Ctrl-C, which ends them in order; a second one ends them at once.
    """
    unknown = [name for name in only or () if name not in NAMES]
    if unknown:
        raise typer.BadParameter(
            f"got {', '.join(unknown)}, wanted some of {', '.join(NAMES)}", param_hint="--only"
        )
    settings = settings_of(home)
    if not settings.pairings:
        settings.pairing()  # raises: there is nothing to run the loop for
    need_control()
    from cli.listening import listening
    from cli.stack import Stack
    from cli.upkeep import Upkeep, write_state
    from cli.worker import alone

    with alone(home), Stack(home, os.environ) as stack, listening(settings):
        if stack.ended:
            print(f"ended leftovers of a killed run: {', '.join(stack.ended)}", file=sys.stderr)
        programs, environ = chosen(settings, stack.environ(), pairing, only or NAMES)
        if {"mlflow", "prefect"} & {program.name for program in programs}:
            stack.create_schemas()
        known = {program.name: program.base for program in programs if program.base}
        (stack.run / "stack.json").write_text(json.dumps(known, indent=1))
        upkeep = Upkeep(programs, folder=stack.run, environ=environ, began=stack.record)
        with ending(upkeep.kill) as asked, shown() as show:
            try:
                told_at = float("-inf")
                while not asked:
                    upkeep.turn()
                    now = upkeep.told()
                    if time.monotonic() >= told_at + TELL_SECONDS:
                        told_at = time.monotonic()
                        write_state(stack.run / STATE, now)
                    show(now)
                    time.sleep(TURN_SECONDS)
            finally:
                upkeep.end()
                (stack.run / STATE).unlink(missing_ok=True)
        raise typer.Exit(asked[0])


def chosen(
    settings: Settings, environ: Mapping[str, str], pairing: str | None, names: Sequence[str]
) -> tuple[list[Any], dict[str, str]]:
    """The programs to keep, in order, and the environment that they all get."""
    from cli import programs as make
    from registry.credentials import for_mlflow

    home, made = settings.home.absolute(), []
    ports = kept_ports(home / "run" / "ports.json", ("mlflow", "prefect", "worker", "server"))
    registry, flows = settings.registry, settings.prefect
    if not registry and "mlflow" in names:
        made.append(make.mlflow(home, ports["mlflow"]))
    if not flows and "prefect" in names:
        made.append(make.prefect(home, ports["prefect"]))
    registry = registry or f"http://{make.HOST}:{ports['mlflow']}"
    flows = flows or f"http://{make.HOST}:{ports['prefect']}/api"
    own = tuple(program.name for program in made)
    # the server's keys are its callers', and the operator's key is for steering it
    keys = {
        k: v for k, v in os.environ.items() if k.startswith(("PACELINE_KEYS", "PACELINE_ADMIN"))
    }
    if "worker" in names:
        worker = make.worker(home, ports["worker"], own)
        made.append(make.with_extra(worker, keys))
    served = serving(settings, pairing)
    if served is not None:
        line = settings.pairing(served)
        url = line.servers[0] if line.servers else ""
        if not url and "server" in names:
            program = make.server(settings, served, registry, ports["server"], own[:1])
            made.append(make.with_extra(program, keys))
            url = make.admin_url(settings, ports["server"])
        if url and "monitor" in names:
            needs = tuple(p.name for p in made if p.name == "server")
            program = make.monitor(home, served, registry, url, needs)
            made.append(make.with_extra(program, keys))
    addresses = {"PACELINE_REGISTRY": registry, "MLFLOW_TRACKING_URI": registry}
    told = {**environ, **addresses, "PREFECT_API_URL": flows}
    if settings.prefect:
        told["PACELINE_PREFECT"] = settings.prefect
    for_mlflow(settings.registry_token, told)
    return made, told


def serving(settings: Settings, pairing: str | None) -> str | None:
    """The pairing that is served and monitored here. ConfigurationError for an unknown one."""
    if pairing is not None:
        settings.pairing(pairing)
        return pairing
    return next(iter(settings.pairings)) if len(settings.pairings) == 1 else None


def kept_ports(path: Path, names: Sequence[str]) -> dict[str, int]:
    """A port for each, the same as last time where nobody else has taken it: a program that is
    started again has to be found where it was."""
    from evaluation.endpoints import free_port
    from flows.steps import read_json, write_json

    known = read_json(path) or {}
    ports = {name: _free(known.get(name)) or free_port() for name in names}
    write_json(path, ports)
    return ports


def _free(port: object) -> int | None:
    import socket

    if not isinstance(port, int):
        return None
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return None
    return port


@contextmanager
def ending(kill: Callable[[], None]) -> Iterator[list[int]]:
    """A list that holds the exit code once SIGTERM or SIGINT came; a second one calls `kill`."""
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        if asked:
            kill()
        asked.append(128 + number)

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def shown() -> Iterator[Callable[[Sequence[Mapping[str, Any]]], None]]:
    """A screen that is drawn anew on a terminal; elsewhere a line for each change."""
    if machine() is None and sys.stderr.isatty():
        from rich.live import Live
        from rich.text import Text

        with Live(auto_refresh=False, screen=False) as live:
            yield lambda told: live.update(Text("\n".join(lines_of(told))), refresh=True)
        return
    last: dict[str, str] = {}

    def changed(told: Sequence[Mapping[str, Any]]) -> None:
        for one in told:
            if last.get(one["name"]) != one["state"]:
                last[one["name"]] = one["state"]
                why = f": {one['why']}" if one["why"] else ""
                emit(one, f"{one['name']} {one['state']} {one['url']}{why}")

    yield changed


def lines_of(told: Sequence[Mapping[str, Any]]) -> list[str]:
    """The screen: a line for each program."""
    rows = [["program", "state", "for", "restarts", "address or reason"]]
    for one in told:
        minutes, seconds = divmod(int(one["seconds"]), 60)
        hours, minutes = divmod(minutes, 60)
        told_for = f"{hours}:{minutes:02}:{seconds:02}"
        where = one["why"] or one["url"] or one["log"]
        rows.append([one["name"], one["state"], told_for, str(one["restarts"]), where[:100]])
    return table(rows)
