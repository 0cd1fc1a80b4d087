"""The command `worker`: runs the flows of one home, so that the loop turns by itself."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.home import DEFAULT_HOME, HomeFolder, Registry, running, servers, settings_of
from cli.listening import listening
from cli.output import Json, emit
from evaluation.endpoints import EndpointError, ending, free_port


class WorkerRunsError(ValueError):
    """Another command runs the flows of this home."""


def worker(
    registry: Registry = None, home: HomeFolder = DEFAULT_HOME, as_json: Json = False
) -> None:
    """Make a pair for each release that has none, and respond to alarms, by itself.

    Looks each minute. Uses the home's own MLflow and Prefect where `serve` or another command runs
    them, or brings them up; or those that paceline.toml names. Stays until SIGTERM or Ctrl-C; what
    is finished by then is not done again.
    """
    settings = settings_of(home, registry)
    if not settings.pairings:
        settings.pairing()  # raises: there is nothing to watch
    from cli.stack import PREFECT
    from cli.supervised import supervised

    with alone(home), servers(settings, flows=True) as there, listening(settings):
        prefect = os.environ["PREFECT_API_URL"]

        def check() -> None:
            there.check()
            now = running(home)
            if not settings.registry and now.get("mlflow", there.registry) != there.registry:
                raise EndpointError(
                    f"the servers of {home} were started anew, elsewhere: run this command again"
                )

        environ = {
            **os.environ,
            **PREFECT,
            "PREFECT_HOME": str(home.absolute() / "prefect"),
            "PREFECT_RUNNER_SERVER_PORT": str(free_port()),
        }
        told = {"registry": there.registry, "prefect": prefect}
        emit(told, f"the flows run, with MLflow at {there.registry} and Prefect at {prefect}")
        argv = [sys.executable, "-m", "flows.worker", "--home", str(home.absolute())]
        code = supervised(argv, sys.stderr, check=check, environ=environ)
    raise EndpointError(f"the worker {ending(code)}: its own words are above")


@contextmanager
def alone(home: Path) -> Iterator[None]:
    """Holds a home's worker's place. WorkerRunsError where another has it: a second one would take
    the runs of the first for leftovers of a killed one."""
    if "worker" in running(home):
        raise WorkerRunsError(f"got {home}, whose flows `paceline demo` runs: end that one first")
    (home / "run").mkdir(parents=True, exist_ok=True)
    with (home / "run" / "worker.lock").open("a") as place:
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise WorkerRunsError(
                f"got {home}, whose flows another `paceline worker` runs: end that one first"
            ) from None
        yield
