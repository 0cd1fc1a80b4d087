"""One server at a time to a home: two would delete each other's downloads and mix their journals.

The kernel frees the lock when its holder ends, however it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

LOCK = "server.lock"


class HomeInUseError(ValueError):
    """Another server keeps its exchange log, its pairs and its journal there."""


@contextmanager
def home_lock(folder: Path) -> Iterator[None]:
    """Be the one server of `folder` (home/serving). Raises HomeInUseError, at once."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise HomeInUseError(
            f"another server keeps its log and its pairs in {folder}: end it, or give this one a "
            "home of its own with --home"
        ) from error
    try:
        yield
    finally:
        lock.release()
