"""What a following server did to its pairs, a line a step, so that the next start knows.

Knows one JSONL file; decides nothing. Lines are forced to the disk: they are few, and a start after
a power cut goes by them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

FOUND = "found"  # the alias names a pair that is not served
DOWNLOADED = "downloaded"  # it lies whole in the pairs' folder
LOADED = "loaded"  # checked and in memory
PROBED = "probed"  # it has answered
SWITCHED = "switched"  # new requests take it
FREED = "freed"  # the pair before it is let go
FAILED = "failed"  # it was given up; the pair before it serves on
ABANDONED = "abandoned"  # the process ended in the middle; said by the next start

OPEN = (FOUND, DOWNLOADED, LOADED, PROBED)
MOST_LINES = 2000  # kept when a start finds more


@dataclass(frozen=True, slots=True)
class Step:
    at: float  # seconds since the epoch
    step: str
    pair: str
    version: str
    why: str = ""


class Journal:
    """Appends steps, and tells what the last process left. One process at a time."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.path, self._clock = path, clock
        self.steps = _read(path)
        if len(self.steps) > MOST_LINES or _torn(path):
            self.steps = self.steps[-MOST_LINES:]
            self._rewrite()
        if self.unfinished is not None:
            self.write(ABANDONED, self.unfinished.pair, self.unfinished.version)

    def write(self, step: str, pair: str, version: str, why: str = "") -> Step:
        """Append one step. Raises OSError when the disk takes nothing."""
        entry = Step(self._clock(), step, pair, version, why)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(entry)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.steps.append(entry)
        return entry

    @property
    def unfinished(self) -> Step | None:
        """The last step of a swap that neither switched nor failed."""
        told = [step for step in self.steps if step.step != FREED]
        return told[-1] if told and told[-1].step in OPEN else None

    @property
    def last_good(self) -> Step | None:
        """The pair that was switched to last: what to serve while the registry is away."""
        return next((step for step in reversed(self.steps) if step.step == SWITCHED), None)

    def switched(self) -> list[str]:
        """Pairs that were served, the latest first, each once."""
        pairs = [step.pair for step in reversed(self.steps) if step.step == SWITCHED]
        return list(dict.fromkeys(pairs))

    def _rewrite(self) -> None:
        beside = self.path.with_suffix(".partial")
        lines = [json.dumps(asdict(step)) + "\n" for step in self.steps]
        beside.write_text("".join(lines), encoding="utf-8")
        beside.replace(self.path)


def _read(path: Path) -> list[Step]:
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    steps = []
    for line in lines:
        try:
            steps.append(Step(**json.loads(line)))
        except (ValueError, TypeError):  # torn by a crash
            continue
    return steps


def _torn(path: Path) -> bool:
    return path.is_file() and not path.read_bytes().endswith(b"\n") and path.stat().st_size > 0
