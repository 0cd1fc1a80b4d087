"""One writer at a time for each pairing, on one host.

The kernel frees the lock when its holder dies. It makes the processes that share the lock folder,
those of one host and one user, wait for each other, where they would else be overtaken or register
something twice. Nothing depends on it: which of two promotions counts, on one host or on several,
is the journal's to say (`registry/journal.py`).
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
