"""The door to MLflow: its client, opened when first needed, and its faults in our words.

MLflow's own defaults would block a caller for minutes when the server is away; here a few short
tries are made and the reason is said. Nothing is imported from MLflow before a client is asked for.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import httpx

from registry.errors import StoreError
from registry.loopback import on_this_machine
from registry.schema import database_of

if TYPE_CHECKING:
    from mlflow import MlflowClient

SETTINGS = {  # MLflow reads these from the environment only; a user's own values win
    "MLFLOW_DISABLE_TELEMETRY": "true",  # whoever runs us, such as an operator's own worker
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",  # seconds without a byte; a long upload is not cut
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # stdout is the command line's
}
PROBE_SECONDS = 3.0

T = TypeVar("T")


def open_client(url: str) -> MlflowClient:
    """A client of the server or database at `url`; tracking and registry are the same place.

    Changes no global setting of MLflow's. `StoreError` at once when the server does not answer.
    """
    if database_of(url) is None and not url.startswith(("http://", "https://")):
        raise ValueError(
            f"registry: got {url!r}, wanted an http(s) URL or sqlite:///path/to/mlflow.db"
        )
    database = database_of(url)
    if database is not None and not database.is_file():
        raise StoreError(
            f"registry: got {url}, where there is no database: check the path, or make one with "
            "`mlflow server` or `paceline init` and a first release; nothing was made"
        )
    check_answers(url)
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=url, registry_uri=url)


def check_answers(url: str) -> None:
    """`StoreError` when the server at `url` is away. A database has no server to ask."""
    if database_of(url) is not None:
        return
    try:
        proxied = not on_this_machine(url)
        answer = httpx.get(f"{url}/health", timeout=PROBE_SECONDS, trust_env=proxied)
    except httpx.HTTPError as error:
        raise StoreError(
            f"the registry at {url} does not answer ({error or type(error).__name__}). Start it, "
            "or check the URL; nothing was changed"
        ) from error
    if answer.status_code >= 500:
        raise StoreError(f"the registry at {url} is not well: /health answers {answer.status_code}")


def insisting(do: Callable[[], T], *, tries: int = 4, pause_seconds: float = 0.1) -> T:
    """What `do` gives, tried again where MLflow refuses: of two that write the same new alias or
    tag at once, its database refuses one for a key that is there already. Only for what may be
    said twice; where the server is away, it is said at once."""
    from mlflow.exceptions import MlflowException

    for left in range(tries - 1, -1, -1):
        try:
            return do()
        except StoreError as error:
            if not left or not isinstance(error.__cause__, MlflowException | OSError):
                raise
            time.sleep(pause_seconds * (1 + random.random()))  # so that two do not meet again
    raise AssertionError("the last try returns or raises")


@contextmanager
def speaking(url: str, doing: str) -> Iterator[None]:
    """Run calls to MLflow; its exceptions come out as a `StoreError` that says what was tried."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        check_answers(url)
        raise StoreError(f"{doing}: the registry at {url} refused: {error.message}") from error
    except OSError as error:  # a full disk, or requests' own errors, which are OSErrors
        check_answers(url)
        raise StoreError(f"{doing}: {error}") from error
