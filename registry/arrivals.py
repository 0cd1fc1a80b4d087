"""What sources show, and what became of it: a release is taken in once, however often it is seen.

Decides which of what a source shows now is due; reads no source itself and takes nothing in. Time
counts as the machine's own since it was started, so a clock that is put forward or back neither
hurries nor delays anything.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BOOT = Path("/proc/sys/kernel/random/boot_id")
BEFORE = "passed over: it was there before this was watched"
KEPT = 2000  # entries about what was handled; the oldest go first


@dataclass(frozen=True, slots=True)
class Arrival:
    """Something that may be a release, as its source shows it before its weights are read."""

    place: str  # what it is fetched by: a folder, models:/name/version, s3://…, owner/name@commit
    signature: str  # another one when its content is
    created: float = 0.0  # seconds since the epoch, by whoever made it: which of several is newer
    pointed: bool = False  # shown since an alias, a branch or a link names it: these go back too
    waits: str = ""  # why it is not whole yet; "" where it is

    @property
    def id(self) -> str:
        """One name for it, whoever shows it."""
        return hashlib.sha256(f"{self.place}\0{self.signature}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Look:
    """What follows from one look at a source."""

    due: tuple[Arrival, ...] = ()  # to be taken in, the oldest first
    waiting: tuple[tuple[Arrival, str], ...] = ()  # seen, and why it is not taken in yet
    back: tuple[tuple[Arrival, str], ...] = ()  # handled before, and named again: what it was


class Arrivals:
    """The memory of one pairing's sources, in one file. One that is broken is an empty one: what
    was taken in before is then found to be known by its digest."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def look(
        self,
        origin: str,  # which source this is
        shown: Sequence[Arrival],
        *,
        settle_seconds: float = 0.0,
        now: tuple[str, float] | None = None,  # which start of the machine, seconds since then
    ) -> Look:
        """What of `shown` is due, waits, or is a way back.

        Of what was there before the first look only the newest counts.
        """
        boot, clock = now or (boot_id(), time.monotonic())
        with self._changing() as kept:
            seen: dict[str, Any] = kept["seen"].get(origin, {})
            since: dict[str, Any] = {
                one.id: seen[one.id]
                if one.id in seen and seen[one.id][0] == boot and seen[one.id][1] <= clock
                else [boot, clock]
                for one in shown
                if not one.waits
            }
            kept["seen"][origin] = since
            waiting, whole = [], []
            ordered = sorted(shown, key=lambda arrival: (arrival.created, arrival.place))
            if origin not in kept["last"]:
                kept["last"][origin] = ""
                for older in [one for one in ordered if not one.waits][:-1]:
                    if older.id not in kept["handled"]:
                        _handle(kept, older.id, BEFORE)
            for one in ordered:
                if one.id in kept["handled"]:
                    whole.append(one)
                elif one.waits:
                    waiting.append((one, one.waits))
                elif clock - since[one.id][1] < settle_seconds:
                    waiting.append((one, f"unchanged for less than {settle_seconds:g} s"))
                else:
                    whole.append(one)
            handled, last = kept["handled"], kept["last"][origin]
            back = [
                (one, str(handled[one.id]["outcome"]))
                for one in whole
                if one.pointed and one.id in handled and last not in ("", one.id)
            ]
        due = tuple(one for one in whole if one.id not in handled)
        return Look(due, tuple(waiting), tuple(back))

    def note(self, origin: str, arrival: Arrival, outcome: str) -> None:
        """Write down what became of it: it is not due again."""
        with self._changing() as kept:
            _handle(kept, arrival.id, outcome)
            if arrival.pointed:
                kept["last"][origin] = arrival.id

    def pointed_at(self, origin: str, arrival: Arrival) -> None:
        """Write down that a way back was told: it is not told again."""
        with self._changing() as kept:
            kept["last"][origin] = arrival.id

    def handled(self) -> frozenset[str]:
        """The ids of all that something became of."""
        return frozenset(_read(self.path)["handled"])

    def outcome(self, arrival: Arrival) -> str | None:
        """What became of it; None while nothing has."""
        told = _read(self.path)["handled"].get(arrival.id)
        return None if told is None else str(told["outcome"])

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Any]]:
        """What is kept, to be changed; written whole, and only where it was changed."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            kept = _read(self.path)
            before = json.dumps(kept)
            yield kept
            after = json.dumps(kept)
            if after != before:
                beside = self.path.with_name(f".{self.path.name}.{os.getpid()}")
                beside.write_text(after, encoding="utf-8")
                os.replace(beside, self.path)


def boot_id() -> str:
    """Which start of the machine this is: its clock since then is not another one's."""
    try:
        return BOOT.read_text().strip()
    except OSError:
        return ""


def _handle(kept: dict[str, Any], name: str, outcome: str) -> None:
    handled = kept["handled"]
    handled[name] = {"outcome": outcome, "at": time.time()}
    for oldest in list(handled)[:-KEPT]:
        del handled[oldest]


def _read(path: Path) -> dict[str, Any]:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        kept = {}
    parts = kept if isinstance(kept, dict) else {}
    return {
        name: parts[name] if isinstance(parts.get(name), dict) else {}
        for name in ("seen", "last", "handled")
    }
