"""How content becomes a digest: 64 hexadecimal digits of a sha256. Knows nothing of models."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from registry.cache import DigestCache
from registry.errors import FolderError
from registry.tensors import Tensor

Progress = Callable[[int, int, str], None]
READERS = 2  # tensors are read and hashed side by side; more than two outrun a disk
LOOK_SECONDS = 0.2  # between two words on how far it is: one tensor may take minutes


def no_progress(done: int, total: int, what: str) -> None:
    """The progress of those who do not watch."""


def digest_of(value: Any) -> str:
    """The digest of plain data, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def digest_of_tensors(
    tensors: Mapping[str, Tensor],
    *,
    what: str = "",
    progress: Progress = no_progress,
    cache: DigestCache | None = None,
) -> str:
    """The digest of the sorted per-tensor digests (name, dtype, shape, bytes)."""
    contents = content_digests(tensors, what=what, progress=progress, cache=cache)
    return digest_of_contents(contents)


def digest_of_contents(contents: Mapping[str, str]) -> str:
    """The same of digests that are known: tensor name to the digest of its content."""
    return digest_of([[name, contents[name]] for name in sorted(contents)])


def content_digests(
    tensors: Mapping[str, Tensor],
    *,
    what: str = "",
    progress: Progress = no_progress,
    cache: DigestCache | None = None,
) -> dict[str, str]:
    """Each tensor's content digest by name, those that `cache` knows without reading them.

    `progress` gets bytes done, bytes in total and `what`, in the caller's thread and several times
    a second. Raises FolderError where a file changes or ends while it is read.
    """
    sighting = None if cache is None else cache.look(tensors)
    found = {} if sighting is None else dict(sighting.known)
    # The largest first: two readers then end at about the same time.
    ahead = sorted(
        (tensor for name, tensor in tensors.items() if name not in found),
        key=lambda tensor: (-tensor.size_bytes, tensor.name),
    )
    meter = _Meter()
    total = sum(tensor.size_bytes for tensor in ahead)
    with ThreadPoolExecutor(READERS) as readers:
        jobs = {readers.submit(tensor.content_digest, meter.add): tensor.name for tensor in ahead}
        pending = set(jobs)
        try:
            while pending:
                done, pending = wait(pending, LOOK_SECONDS, FIRST_EXCEPTION)
                found |= {jobs[job]: job.result() for job in done}
                progress(meter.done_bytes, total, what)
        except BaseException:  # Ctrl-C too: what is being read is let go of within one piece
            meter.stopped = True
            readers.shutdown(cancel_futures=True)
            raise
    if cache is not None and sighting is not None:
        cache.keep(sighting, tensors, found)
    return found


def digest_of_file(path: Path) -> str:
    """The sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _Meter:
    """Bytes read so far by all readers, and whether they shall stop."""

    def __init__(self) -> None:
        self.done_bytes, self.stopped = 0, False
        self._lock = threading.Lock()

    def add(self, read_bytes: int) -> None:
        if self.stopped:
            raise FolderError("reading was stopped")
        with self._lock:
            self.done_bytes += read_bytes
