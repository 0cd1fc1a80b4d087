"""The home folder a command works on: its configuration, and its servers wherever they answer.

Without a named server, and where no stack of this home runs, a command brings up the home's own
for as long as it needs them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from configuration.quiet import quieten
from configuration.reading import FILE, read_settings
from configuration.settings import Settings
from evaluation.endpoints import EndpointError
from registry.credentials import for_mlflow

GONE_SECONDS = 30.0  # another command's servers may be slow to answer for a moment
LOOK_SECONDS = 5.0  # between two looks at them
MOST_REASON = 1000  # characters; MLflow's pages hold 5000, escaped and with all else that is said

DEFAULT_HOME = Path("paceline-home")
HomeFolder = Annotated[
    Path,
    typer.Option(
        "--home",
        metavar="DIR",
        envvar="PACELINE_HOME",
        help="The folder that holds paceline.toml and everything embedded.",
        file_okay=False,
    ),
]
Registry = Annotated[
    str | None,
    typer.Option(
        "--registry",
        metavar="URL",
        help="URL of the MLflow server; left out, the one configured or embedded in the home.",
    ),
]


def sound_name(pairing: str) -> str:
    """A pairing's name, before anything is started for it. Raises typer.BadParameter."""
    from registry.versions import check_name

    try:
        return check_name(pairing)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def worded(reason: str | None) -> str | None:
    """A reason that says something, where one is given: `--force "$WHY"` of an empty variable is a
    slip. So is a file's worth: MLflow keeps it in a tag and on pages. Raises typer.BadParameter."""
    if reason is not None and not reason.strip():
        raise typer.BadParameter("got nothing, wanted the reason in words")
    if reason is not None and len(reason) > MOST_REASON:
        raise typer.BadParameter(
            f"got a reason of {len(reason)} characters, wanted {MOST_REASON} at most"
        )
    return reason


PairingName = Annotated[
    str,
    typer.Option(
        "--pairing",
        metavar="NAME",
        help="The pairing's name in paceline.toml.",
        callback=sound_name,
    ),
]


def settings_of(home: Path, registry: str | None = None) -> Settings:
    """The home's settings, with the registry of the command line over the configured one."""
    over = {} if registry is None else {"PACELINE_REGISTRY": registry}
    settings = read_settings(home, environ={**os.environ, **over})
    for_mlflow(settings.registry_token, os.environ)
    return settings


def settings_of_existing(home: Path, registry: str | None) -> Settings:
    """The same for commands about what is registered already: a mistyped home is not made anew,
    and a folder that was never a home is not filled."""
    settings = settings_of(home, registry)
    if not settings.registry and not (home / FILE).exists() and not has_registry(home):
        got = (
            "which has no paceline.toml and no registry" if home.exists() else "which is not there"
        )
        raise typer.BadParameter(
            f"got {home}, {got}: run `paceline demo`, write a configuration with "
            "`paceline init`, or name another folder",
            param_hint="--home",
        )
    return settings


def has_registry(home: Path) -> bool:
    """Whether anything was ever registered in the home's own MLflow."""
    return (home / "mlflow" / "mlflow.db").exists()


def need_control() -> None:
    """Raises ModuleNotFoundError where the home's own servers cannot be brought up here."""
    for library in ("mlflow", "prefect"):
        if find_spec(library) is None:
            raise ModuleNotFoundError(f"No module named {library!r}", name=library)


@dataclass(frozen=True)
class Servers:
    """An MLflow server that answers, and whether it and its like are still there."""

    registry: str  # URL
    check: Callable[[], None]  # raises EndpointError where they are gone for good


@contextmanager
def servers(settings: Settings, *, flows: bool = False) -> Iterator[Servers]:
    """An MLflow server that answers; with `flows`, a Prefect server too.

    The environment says where both are for as long as the block runs, since that is where the
    flows and both libraries look.
    """
    there = running(settings.home)
    registry = settings.registry or there.get("mlflow", "")
    prefect = settings.prefect or (f"{there['prefect']}/api" if "prefect" in there else "")
    if registry and (prefect or not flows):
        borrowed = not (settings.registry and (settings.prefect or not flows))
        with environment(settings, registry, prefect):
            # an operator's own servers come back by themselves, and their clients wait for them
            check = Borrowed(settings.home).check if borrowed else lambda: None
            yield Servers(registry, check)
        return
    need_control()
    from cli.stack import Stack

    with Stack(settings.home, os.environ) as stack:
        print("paceline: starting the home's own servers", file=sys.stderr)  # it takes a while
        stack.create_schemas()
        registry = registry or stack.start_mlflow()
        if flows and not prefect:
            prefect = f"{stack.start_prefect()}/api"
        with environment(settings, registry, prefect, stack.environ()):
            yield Servers(registry, stack.check)


@dataclass
class Borrowed:
    """Servers of this home that another command brought up, and takes down when it ends."""

    home: Path
    clock: Callable[[], float] = time.monotonic
    _looked: float = field(default=float("-inf"), init=False)
    _seen: float | None = field(default=None, init=False)

    def check(self) -> None:
        """Raise EndpointError where they have not answered for `GONE_SECONDS`."""
        now = self.clock()
        if now < self._looked + LOOK_SECONDS:
            return
        self._looked = now
        if running(self.home) or self._seen is None:
            self._seen = now
        elif now > self._seen + GONE_SECONDS:
            raise EndpointError(
                f"the servers of {self.home}, which another command ran, are gone: run this "
                "command again to go on, and it brings up its own"
            )


@contextmanager
def environment(
    settings: Settings, registry: str, prefect: str, more: Mapping[str, str] | None = None
) -> Iterator[None]:
    """What the flows and the libraries read, put back afterwards."""
    from cli.stack import past_proxies

    before = dict(os.environ)
    os.environ.update(more or {})
    quieten(os.environ)
    os.environ.update(past_proxies(before))
    os.environ["PACELINE_HOME"] = str(settings.home.absolute())
    os.environ["PACELINE_REGISTRY"] = os.environ["MLFLOW_TRACKING_URI"] = registry
    if prefect:
        os.environ["PREFECT_API_URL"] = prefect
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def running(home: Path) -> dict[str, str]:
    """Where the servers of this home answer, by name; nothing where none of them does."""
    import httpx

    try:
        urls = json.loads((home / "run" / "stack.json").read_text())
        url = f"{urls['mlflow']}/health"
        httpx.get(url, timeout=3.0, trust_env=False).raise_for_status()
    except (OSError, ValueError, KeyError, TypeError, httpx.HTTPError):
        return {}  # no stack, or the note of one that was killed
    return {str(name): str(url) for name, url in urls.items()}
