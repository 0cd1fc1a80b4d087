"""Digests computed before, so that a folder that is only looked at again is not read again.

A file is recognised by the checksum that the hub published for it (the name of its blob in the
hub's cache, with its size), or by where it lies and the facts that change with it: size, times,
inode. Neither proves content. So whoever registers a release, or loads one for the first time on a
host, passes no cache; it is for looking again, where a wrong answer is found out later. Knows
files and tensors; nothing of models.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import get_ident
from typing import Any

from registry.tensors import Tensor

SCHEMA = 1
KEPT_FILES = 1000  # those seen last; an entry is a few kilobytes
CACHE_LIMIT_BYTES = 200_000_000
# A file written a moment ago may be written again within the same tick of its file system's clock.
SETTLED_SECONDS = 2.0
PUBLISHED = re.compile(r"[0-9a-f]{64}")
DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Sighting:
    """What the files looked like before they were read, and which digests were known then."""

    keys: Mapping[Path, str]
    known: Mapping[str, str]  # tensor name to content digest
    seen: float  # seconds since the epoch


class DigestCache:
    """A cache in one file. One that is missing, broken or not writable is an empty one."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock

    def look(self, tensors: Mapping[str, Tensor]) -> Sighting:
        """Which of the tensors' digests are known. All of a file's are, or none."""
        seen = self._clock()
        keys = {path: _key(path) for path in {tensor.path for tensor in tensors.values()}}
        stored = self._stored()
        known: dict[str, str] = {}
        for path, key in keys.items():
            inside = {name: t for name, t in tensors.items() if t.path == path}
            entry = stored.get(key)
            held = entry.get("tensors") if isinstance(entry, Mapping) else None
            if isinstance(held, Mapping) and inside.keys() <= held.keys():
                digests = {name: _digest(held[name], tensor) for name, tensor in inside.items()}
                if None not in digests.values():
                    known |= {name: digest for name, digest in digests.items() if digest}
        return Sighting(keys, known, seen)

    def keep(
        self, sighting: Sighting, tensors: Mapping[str, Tensor], digests: Mapping[str, str]
    ) -> None:
        """Keep what was computed of files that are as they were when they were looked at."""
        fresh: dict[str, Any] = {}
        for path, key in sighting.keys.items():
            inside = {name: t for name, t in tensors.items() if t.path == path}
            if inside.keys() <= sighting.known.keys():
                continue
            with suppress(OSError):  # a file that is gone meanwhile is not kept
                settled = sighting.seen - path.stat().st_mtime >= SETTLED_SECONDS
                if settled and _key(path) == key:
                    held = {name: [*_place(t), digests[name]] for name, t in inside.items()}
                    fresh[key] = {"seen": sighting.seen, "tensors": held}
        if fresh:
            self._write({**self._stored(), **fresh})

    def _stored(self) -> dict[str, Any]:
        try:
            if self.path.stat().st_size > CACHE_LIMIT_BYTES:
                return {}
            read = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        files = read.get("files") if isinstance(read, dict) else None
        return files if isinstance(files, dict) and read.get("schema") == SCHEMA else {}

    def _write(self, files: Mapping[str, Any]) -> None:
        """Of two that write at once the later one's entries stay: the others are read again."""
        latest = sorted(files.items(), key=lambda item: -_seen(item[1]))[:KEPT_FILES]
        beside = self.path.with_name(f".{self.path.name}.{os.getpid()}.{get_ident()}")
        with suppress(OSError):  # a full disk costs the time of reading again, and nothing else
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                beside.write_text(json.dumps({"schema": SCHEMA, "files": dict(latest)}), "utf-8")
                beside.replace(self.path)
            finally:
                beside.unlink(missing_ok=True)


def _key(path: Path) -> str:
    """What recognises the file. Empty, which nothing is kept under, where it cannot be seen."""
    try:
        real = path.resolve(strict=True)
        facts = real.stat()
    except (OSError, RuntimeError):
        return ""
    if real.parent.name == "blobs" and PUBLISHED.fullmatch(real.name):
        return f"sha256:{real.name}:{facts.st_size}"
    changing = (facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino, facts.st_dev)
    return ":".join([*map(str, changing), str(real)])


def _place(tensor: Tensor) -> list[Any]:
    return [tensor.dtype, list(tensor.shape), tensor.start]


def _digest(held: object, tensor: Tensor) -> str | None:
    """The digest kept for a tensor, if the file's header still says of it what it said then."""
    if isinstance(held, list) and len(held) == 4 and held[:3] == _place(tensor):
        digest = held[3]
        return digest if isinstance(digest, str) and DIGEST.fullmatch(digest) else None
    return None


def _seen(entry: object) -> float:
    seen = entry.get("seen") if isinstance(entry, Mapping) else None
    return float(seen) if isinstance(seen, int | float) else 0.0
