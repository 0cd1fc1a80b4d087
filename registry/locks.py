"""One writer at a time for each pairing, on one host.

MLflow has no compare-and-set, so a promotion reads, decides and writes under a lock that the
kernel frees when its holder dies. It orders the processes that share the lock folder: those of one
host and one user. Writers on several hosts are not ordered; the read-back after a promotion is all
that they have.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from registry.errors import StoreError


@contextmanager
def locked(path: Path, *, timeout_seconds: float = 120.0) -> Iterator[None]:
    """Hold the lock file `path`. `StoreError` when another process keeps it for too long."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(path, timeout=timeout_seconds):
            yield
    except Timeout as error:
        raise StoreError(
            f"{path}: another process has held this lock for {timeout_seconds:g} s. Wait for it, "
            "or end it if it hangs: the lock goes with its process"
        ) from error


def lock_folder(url: str) -> Path:
    """Where the locks of the store at `url` lie: beside SQLite's file, or in the user's cache."""
    if url.startswith("sqlite:///"):
        return Path(url.removeprefix("sqlite:///")).resolve().parent / "locks"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "paceline" / "locks" / hashlib.sha256(url.encode()).hexdigest()[:16]
