"""Steps that are done once: a marker on disk, written atomically, holds what a step gave.

A marker counts only for the inputs it was made from. Knows files and JSON; knows nothing of
Prefect or of what a step does, so a step means the same to a flow, a test and the command line.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LOOK_SECONDS = 1.0  # between two looks at a lock that is waited for with a limit
PROGRESS = "progress.json"  # in a work folder: how far the step that runs there is


def once(
    folder: Path,
    name: str,
    inputs: Mapping[str, Any],  # JSON values: what the step's result follows from
    work: Callable[[], Mapping[str, Any]],  # gives JSON values
    *,
    lasting: Callable[[Mapping[str, Any]], bool] = lambda result: True,
) -> dict[str, Any]:
    """What `work` gave for these inputs, from the marker where there is one. A result that is not
    `lasting` is given and not marked: asked again, the step is done again.

    Killed before the marker is written, the step runs again: `work` has to bear that, by going on
    from its own checkpoints or by finding what it already did.
    """
    key = digest(inputs)
    found = finished(folder, name, key)
    if found is not None:
        return found
    started = time.time()
    clock = time.monotonic()
    result = dict(work())
    if not lasting(result):
        return result
    marker = {"key": key, "inputs": dict(inputs), "result": result, "started": started}
    write_json(folder / f"{name}.done.json", {**marker, "seconds": time.monotonic() - clock})
    return result


def finished(folder: Path, name: str, key: str | None = None) -> dict[str, Any] | None:
    """What the step gave; None when it is not done, or was done from other inputs than `key`."""
    marker = read_json(folder / f"{name}.done.json")
    if marker is None or (key is not None and marker["key"] != key):
        return None
    result: dict[str, Any] = marker["result"]
    return result


def digest(inputs: Mapping[str, Any]) -> str:
    """One name for a set of JSON values, whatever their order."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """The sha256 of a file, for inputs that are files."""
    with path.open("rb") as stored:
        return hashlib.file_digest(stored, "sha256").hexdigest()


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object; None when there is no such file or it does not hold one."""
    try:
        stored = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return stored if isinstance(stored, dict) else None


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """All of it or nothing: readers see the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("w") as out:
            json.dump(value, out, indent=1)
            out.flush()
            os.fsync(out.fileno())
        os.replace(beside, path)
    except BaseException:  # a disk that is full, above all: half a file would take of what is left
        beside.unlink(missing_ok=True)
        raise


@contextmanager
def alone(
    path: Path, waiting: Callable[[], None] = lambda: None, *, seconds: float | None = None
) -> Iterator[None]:
    """One process at a time; the system frees the lock with its holder, however that ends.

    Heavy work of one home queues here: two that compute at once take more than twice as long.
    `waiting` is called once when somebody else holds the lock. TimeoutError where it is held for
    `seconds` more.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            waiting()
            _wait(held.fileno(), seconds)
        yield


def _wait(held: int, seconds: float | None) -> None:
    if seconds is None:
        fcntl.flock(held, fcntl.LOCK_EX)
        return
    end = time.monotonic() + seconds
    while True:  # a lock with a time limit is not to be had from the system
        try:
            return fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() >= end:
                raise TimeoutError(f"another computes here since {seconds:g} s and more") from None
            time.sleep(min(LOOK_SECONDS, seconds))
