"""series.jsonl: how acceptance went over time, appended to; what is old is thinned (thinning.py).

Knows points of windows, what the server's counters did, and marks (a release, a promotion, a swap,
an alarm); knows nothing of how they were computed or drawn. A killed writer leaves at most one
broken last line, which the next writer closes and readers skip; a point written twice is read once.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from speculation.records import Interval

MARKS = ("release", "promotion", "swap", "alarm")


@dataclass(frozen=True, slots=True)
class Point:
    """The last requests of one pair, as they stood when one more had ended."""

    at: float  # seconds since the epoch, when the last of them ended
    pair: str
    drafter: str
    release: str  # digest
    draft_len: int
    requests: int
    acceptance: Interval | None  # alpha-hat; None where no draft was judged
    standardised: (
        Interval | None
    )  # the same weighted as the baseline's positions, where there is one
    acceptance_length: float | None
    hazards: tuple[float | None, ...]
    forwards_per_request: Interval | None
    tokens_per_second: float | None  # as one request sees it


@dataclass(frozen=True, slots=True)
class Throughput:
    """What the server's own counters did between two looks at its metrics."""

    at: float  # seconds since the epoch, the later look
    pair: str
    drafter: str
    seconds: float  # between the looks; longer where looks failed
    requests: int
    errors: int
    acceptance: float | None
    emitted_per_second: float  # all requests together


@dataclass(frozen=True, slots=True)
class Gauge:
    """What a server says of its own last steps, over a window that it chose: no counts."""

    at: float  # seconds since the epoch
    pair: str
    drafter: str
    source: str  # its address
    acceptance_rate: float | None  # accepted over drafted
    acceptance_length: float | None
    told: str  # what it is, for people


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at one moment and may explain what came after."""

    at: float  # seconds since the epoch
    what: str  # one of MARKS
    label: str
    pair: str = ""


Entry = Point | Throughput | Gauge | Mark
_KINDS: dict[str, type[Point] | type[Throughput] | type[Gauge] | type[Mark]] = {
    "window": Point,
    "throughput": Throughput,
    "gauges": Gauge,
    "mark": Mark,
}
NAMES = {kind: name for name, kind in _KINDS.items()}


def append(path: Path, entries: Iterable[Entry]) -> None:
    """Append whole lines in one write; several processes may append to one file."""
    lines = [json.dumps({"kind": NAMES[type(e)], **asdict(e)}) + "\n" for e in entries]
    if not lines:
        return
    with locked(path) as file:
        size = os.fstat(file).st_size
        torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
        text = ("\n" if torn else "") + "".join(lines)
        os.write(file, text.encode())


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """The file, made where it is not there, with nobody else writing to it or replacing it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_at(file, path):
                yield file
                return
        finally:
            os.close(file)  # and lets go of it


def _is_at(file: int, path: Path) -> bool:
    """Was it replaced while the lock was waited for?"""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def read_series(path: Path) -> list[Entry]:
    """Every entry once, by time. Lines that are no entry are skipped; no file is no entries."""
    if not path.exists():
        return []
    found: dict[tuple[Any, ...], Entry] = {}
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                entry = _entry(json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError):
                continue
            found[_identity(entry)] = entry
    return sorted(found.values(), key=lambda entry: entry.at)


def _entry(stored: dict[str, Any]) -> Entry:
    kind = _KINDS[stored.pop("kind")]
    for key in ("acceptance", "standardised", "forwards_per_request"):
        if isinstance(stored.get(key), dict):
            stored[key] = Interval(**stored[key])
    if "hazards" in stored:
        stored["hazards"] = tuple(stored["hazards"])
    return kind(**stored)


def _identity(entry: Entry) -> tuple[Any, ...]:
    if isinstance(entry, Mark):
        return (Mark, entry.at, entry.what, entry.label, entry.pair)
    source = entry.source if isinstance(entry, Gauge) else ""
    return (type(entry), entry.at, entry.pair, entry.drafter, source)
