"""The home folder a command works on: its configuration, and its registry wherever that answers.

Without a named registry, and where no stack of this home runs, the command brings up the home's own
MLflow server for as long as it needs it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from configuration.reading import read_settings
from configuration.settings import Settings

HomeFolder = Annotated[
    Path,
    typer.Option(
        "--home",
        envvar="PACELINE_HOME",
        help="The folder that holds paceline.toml and everything embedded.",
        file_okay=False,
    ),
]
Registry = Annotated[
    str | None,
    typer.Option(
        "--registry",
        help="URL of the MLflow server; left out, the one configured or embedded in the home.",
    ),
]
PairingName = Annotated[
    str, typer.Option("--pairing", help="The configured line that this is about.")
]
DEFAULT_HOME = Path("paceline-home")


def settings_of(home: Path, registry: str | None = None) -> Settings:
    """The home's settings, with the registry of the command line over the configured one."""
    over = {} if registry is None else {"PACELINE_REGISTRY": registry}
    return read_settings(home, environ={**os.environ, **over})


@contextmanager
def open_registry(settings: Settings) -> Iterator[str]:
    """The URL of an MLflow server that answers, and the environment its client reads."""
    if settings.registry_token:
        os.environ["MLFLOW_TRACKING_TOKEN"] = settings.registry_token
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    url = settings.registry or running(settings.home).get("mlflow")
    if url:
        yield url
        return
    from cli.stack import Stack

    with Stack(settings.home, os.environ) as stack:
        print("paceline: starting the home's own registry", file=sys.stderr)
        stack.create_schemas()
        yield stack.start_mlflow()


def running(home: Path) -> dict[str, str]:
    """Where the servers of this home answer, by name; nothing where none of them does."""
    import httpx

    try:
        urls = json.loads((home / "run" / "stack.json").read_text())
        httpx.get(f"{urls['mlflow']}/health", timeout=3.0).raise_for_status()
    except (OSError, ValueError, KeyError, TypeError, httpx.HTTPError):
        return {}  # no stack, or the note of one that was killed
    return {str(name): str(url) for name, url in urls.items()}
