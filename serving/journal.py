"""What a following server did to its pairs, a line a step, so that the next start knows.

Knows one JSONL file; decides nothing. Lines are forced to the disk: they are few, and a start after
a power cut goes by them.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

log = logging.getLogger("paceline.serving")

FOUND = "found"  # the alias names a pair that is not served
DOWNLOADED = "downloaded"  # it lies whole in the pairs' folder
LOADED = "loaded"  # checked and in memory
PROBED = "probed"  # it has answered
SWITCHED = "switched"  # new requests take it
RESUMED = "resumed"  # served again from the local copy: a start, or a swap that failed
FREED = "freed"  # the pair before it is let go
FAILED = "failed"  # it was given up; the pair before it serves on
ABANDONED = "abandoned"  # the process ended in the middle; `why` is the step it had reached
ASKED = "asked to end"  # `why` of one that was ended in order
MUTE = "ProbeError"  # how `why` begins where a pair gave no answer, perhaps for ever

OPEN = (FOUND, DOWNLOADED, LOADED, PROBED)
IN_HAND = (DOWNLOADED, LOADED)  # what follows is the pair's own doing: loading it, trying it
MOST_LINES = 2000  # kept when a start finds more, beside the switches that still matter
PAIRS_KEPT = 4  # the latest that were switched to, also on the disk


@dataclass(frozen=True, slots=True)
class Step:
    at: float  # seconds since the epoch
    step: str
    pair: str
    version: str
    why: str = ""
    pairing: str = ""  # whose pair it is; empty: of a line that was written before that was kept


class Journal:
    """Appends steps, and tells what the last process left. One process at a time, any thread.

    A disk that takes nothing does not keep it from being read and begun.
    """

    def __init__(
        self,
        path: Path,
        *,
        pairing: str = "",  # that is served; empty: whichever was
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path, self.pairing, self._clock = path, pairing, clock
        self._writing = threading.Lock()
        self.steps, whole = _read(path)
        self._torn = not whole  # the file's last line is no line
        try:
            if len(self.steps) > MOST_LINES or self._torn:
                self.steps = _kept(self.steps)
                self._rewrite()
                self._torn = False
            if (left := self.unfinished) is not None:
                self.write(ABANDONED, left.pair, left.version, left.step)
        except OSError as error:
            log.warning("the journal %s cannot be written: %s", path, error.strerror)

    def write(self, step: str, pair: str, version: str, why: str = "") -> Step:
        """Append one step. Raises OSError when the disk takes nothing; then nothing was written.

        What fails once the line is on the disk is logged: a swap must not be undone that the next
        start would find done.
        """
        entry = Step(self._clock(), step, pair, version, why, self.pairing)
        with self._writing:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # A newline ends what a write has left that neither succeeded nor could be taken back.
            line = (b"\n" if self._torn else b"") + json.dumps(asdict(entry)).encode() + b"\n"
            # Without a buffer, which would be written once more when the file is closed.
            with self.path.open("ab", buffering=0) as file:
                size = file.tell()
                try:
                    if file.write(line) != len(line):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    os.fsync(file.fileno())
                except OSError:
                    self._torn = True
                    with suppress(OSError):
                        file.truncate(size)
                    raise
            self._torn = False
            self.steps.append(entry)
            try:
                if size == 0:
                    _sync(self.path.parent)
                if len(self.steps) >= 2 * MOST_LINES:  # of a server that tries a bad pair for weeks
                    self.steps = _kept(self.steps)
                    self._rewrite()
            except OSError as error:
                log.warning("the journal %s is not tidied: %s", self.path, error.strerror)
        return entry

    @property
    def unfinished(self) -> Step | None:
        """The last step of a swap that neither switched nor failed."""
        told = [step for step in self.steps if step.step != FREED]
        return told[-1] if told and told[-1].step in OPEN else None

    @property
    def last_good(self) -> Step | None:
        """The pair that was switched to last: what to serve while the registry is away. Never one
        of another pairing, which this home may have served before."""
        return next(
            (
                step
                for step in reversed(self.steps)
                if step.step == SWITCHED
                and (self.pairing in ("", step.pairing) or not step.pairing)
            ),
            None,
        )

    def switched(self) -> list[str]:
        """Pairs that were served, the latest first."""
        return _switched(self.steps)

    def harm(self, pair: str, version: str) -> int:
        """How often a process has ended while it loaded or tried this pair, or got no answer from
        it, since any was served newly or this one again."""
        count = 0
        for step in reversed(self.steps):
            own = (step.pair, step.version) == (pair, version)
            if step.step == SWITCHED or (own and step.step == RESUMED):
                break
            ended = step.step == ABANDONED and step.why in IN_HAND
            mute = step.step == FAILED and step.why.startswith(MUTE)
            count += own and (ended or mute)
        return count

    def _rewrite(self) -> None:
        beside = self.path.with_suffix(".partial")
        lines = [json.dumps(asdict(step)) + "\n" for step in self.steps]
        with beside.open("w", encoding="utf-8") as file:
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.path)
        _sync(self.path.parent)


def _switched(steps: Sequence[Step]) -> list[str]:
    pairs = [step.pair for step in reversed(steps) if step.step == SWITCHED]
    return list(dict.fromkeys(pairs))


def _kept(steps: Sequence[Step]) -> list[Step]:
    """The latest lines, and of those before them the switches to the pairs that are kept."""
    old, late = steps[:-MOST_LINES], steps[-MOST_LINES:]
    wanted = set(_switched(steps)[:PAIRS_KEPT]) - set(_switched(late))
    last = {step.pair: step for step in old if step.step == SWITCHED and step.pair in wanted}
    return [*sorted(last.values(), key=lambda step: step.at), *late]


def _read(path: Path) -> tuple[list[Step], bool]:
    """The steps, and whether the file ends with a whole line."""
    try:
        stored = path.read_bytes()
    except FileNotFoundError:
        return [], True
    return list(filter(None, map(_step, stored.splitlines()))), stored[-1:] in (b"", b"\n")


def _step(line: bytes) -> Step | None:
    try:
        step = Step(**json.loads(line))
    except (ValueError, TypeError, RecursionError):  # torn by a crash
        return None
    texts = (step.step, step.pair, step.version, step.why, step.pairing)
    sound = isinstance(step.at, int | float) and all(isinstance(text, str) for text in texts)
    return step if sound else None


def _sync(folder: Path) -> None:
    """Force a folder's new names to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
