"""The exchange log: one JSON line for each served request, appended, rotated, read back.

Knows files and `Exchange` records; knows nothing of servers, text or statistics. A line holds the
exchange and `logged`, seconds since the epoch at which it was written, which grows strictly from
line to line: the cursor a reader goes on from. Requests are logged as they end, so `started` is no
cursor: a long request is logged after shorter ones that started later.

A file is named by the microsecond of its first line, so names sort by time and a reader skips whole
files. A crash can tear the last line of a file only; the next writer begins a new file, and readers
pass over a line that does not parse.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from io import FileIO
from itertools import zip_longest
from pathlib import Path
from typing import Any

from speculation.records import Exchange

MICROSECOND = 1e-6
REST = ".rest"  # of a file, while the lines before it are deleted
FILES_A_LIFETIME = 32  # at least: what is deleted early is at most one of them


class ExchangeLog:
    """Appends to the log in `folder`, which one process at a time may do.

    Each line is handed to the operating system at once, so it outlives a crash of the process; it
    is not forced to the disk, so a power cut may lose the last ones. Lines may hold what users
    wrote, so nobody but the process' own user may read them. Raises OSError when the disk is full
    or the folder cannot be written: the caller decides whether that matters.
    """

    def __init__(
        self,
        folder: Path,
        *,
        rotate_bytes: int = 16 * 2**20,  # a file is closed when it has grown to this
        keep_bytes: int = 2**30,  # of all files together; the oldest go first
        keep_seconds: float = 30 * 24 * 3600,  # no line is kept for longer
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = folder
        self.rotate_bytes = min(rotate_bytes, max(keep_bytes // 2, 1))
        self.keep_bytes = keep_bytes
        self.keep_seconds = keep_seconds
        self.rotate_seconds = keep_seconds / FILES_A_LIFETIME  # or when it is this old
        self._clock = clock
        self._file: FileIO | None = None
        self._size = 0
        self._begun = 0.0
        self._logged = max((_begun(path) for path in files(folder)), default=0.0)
        self._deleting = threading.Lock()  # held while a file is written anew

    def append(self, exchange: Exchange) -> None:
        """Write one exchange. Raises OSError."""
        self._logged = max(self._clock(), self._logged + MICROSECOND)
        grown = self._size >= self.rotate_bytes or self._logged >= self._begun + self.rotate_seconds
        if grown or not self._there():
            self._rotate()
        assert self._file is not None
        stored = {"logged": round(self._logged, 6), **asdict(exchange)}
        line = json.dumps(stored, separators=(",", ":")).encode() + b"\n"
        try:
            if self._file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._file.name)
        except OSError:
            self.close()  # what is half written stays in a file that nothing is appended to
            raise
        self._size += len(line)

    def expire(self) -> int:
        """Delete the files with a line whose time is up; how many. To be called now and then.

        A file goes with its first line, so that its last ones go a little early rather than late.
        Raises OSError.
        """
        dead = self._clock() - self.keep_seconds
        old = [path for path in files(self.folder) if _begun(path) <= dead]
        if self._file is not None and Path(self._file.name) in old:
            self.close()
        for path in old:
            path.unlink(missing_ok=True)
        if self._deleting.acquire(blocking=False):
            try:
                for path in self.folder.glob(f"*{REST}"):  # what a crash left of a deletion
                    path.unlink(missing_ok=True)
            finally:
                self._deleting.release()
        return len(old)

    def deletion(self, *, before: float) -> Callable[[], int]:
        """What deletes every line logged until now and before `before`, and says how many.

        To be called once, in whatever thread: what is appended meanwhile goes to a file of its own.
        It raises OSError.
        """
        self.close()
        paths = files(self.folder)

        def delete() -> int:
            with self._deleting:
                return _delete(paths, before)

        return delete

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _there(self) -> bool:
        """Whether the open file is the one of its name: the folder may be moved or emptied."""
        if self._file is None:
            return False
        try:
            named = os.stat(self._file.name)
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(self._file.fileno()))

    def _rotate(self) -> None:
        self.close()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)  # it may stand from before, or be made for everybody
        self.expire()
        self._make_room()
        path = self.folder / f"{round(self._logged / MICROSECOND):017d}.jsonl"
        self._file = FileIO(path, "xb", opener=_for_us)
        self._size, self._begun = 0, self._logged

    def _make_room(self) -> None:
        kept = 0
        for path in reversed(files(self.folder)):
            kept += path.stat().st_size
            if kept > self.keep_bytes - self.rotate_bytes:
                path.unlink()


def read_exchanges(folder: Path, since: float = 0.0) -> Iterator[Exchange]:
    """The exchanges logged after `since` (seconds since the epoch), in the order of the log."""
    for stored in read_logged(folder, since):
        try:
            exchange = Exchange.from_json(stored)
        except (KeyError, TypeError, ValueError):  # no line of ours, whoever wrote it
            continue
        yield exchange


def read_logged(folder: Path, since: float = 0.0) -> Iterator[dict[str, Any]]:
    """As `read_exchanges`, but the stored objects, each with its `logged`: the next `since`."""
    paths = files(folder)
    for path, following in zip_longest(paths, paths[1:]):
        if following is not None and _begun(following) <= since:
            continue  # every line of it was logged before the next file was begun
        try:
            lines = path.open("rb")
        except FileNotFoundError:  # its time was up while we read
            continue
        with lines:
            for line in lines:
                stored = _parsed(line)
                if stored is not None and stored["logged"] > since:
                    yield stored


def delete_exchanges(folder: Path, *, before: float) -> int:
    """Delete every line logged before `before` (seconds since the epoch); how many. Raises OSError.

    For a folder that nobody writes to: a log's own writer has `deletion`.
    """
    return _delete(files(folder), before)


def files(folder: Path) -> list[Path]:
    """The log's files, oldest first."""
    return sorted(path for path in folder.glob("*.jsonl") if path.stem.isdigit())


def _delete(paths: Sequence[Path], before: float) -> int:
    deleted = 0
    for path in paths:
        if _begun(path) >= before:
            break  # files are in the order of their lines
        kept, gone = [], 0
        try:
            lines = path.open("rb")
        except FileNotFoundError:  # its time was up meanwhile
            continue
        with lines:
            for line in lines:
                stored = _parsed(line)
                if stored is not None and stored["logged"] >= before:
                    kept.append(line)
                else:
                    gone += stored is not None
        if kept:  # whole or not at all; a reader goes on in the file that it has open
            rest = path.with_suffix(REST)
            with FileIO(rest, "wb", opener=_for_us) as written:
                written.writelines(kept)
            if path.exists():
                rest.replace(path)
            else:  # its time was up while we read: it must not come back
                rest.unlink()
        else:
            path.unlink(missing_ok=True)
        deleted += gone
    return deleted


def _parsed(line: bytes) -> dict[str, Any] | None:
    """The stored object; None for a line torn by a crash, still being written, or not of a log."""
    try:
        stored = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(stored, dict) or type(stored.get("logged")) not in (int, float):
        return None
    return stored


def _for_us(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _begun(path: Path) -> float:
    return int(path.stem) * MICROSECOND
