"""The alarm outbox: a folder that holds each alarm once until it has been delivered.

Knows files and fixed ids; knows nothing of who delivers or to whom. An alarm is `<id>.json`, a
delivered one has `<id>.delivered` beside it and is kept, so that raising it again stays without
effect. Both appear whole or not at all, so a process may be killed at any moment.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from speculation.records import Alarm

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Outbox:
    """`put` where an alarm is raised, `pending` and `delivered` where it is delivered."""

    def __init__(self, folder: Path) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        sweep(self._folder)

    def put(self, alarm: Alarm) -> bool:
        """Store it unless its id is known; True when it is new. ValueError for an unfit id."""
        path = self._path(alarm.id, ".json")
        if path.exists():
            return False
        write_whole(path, json.dumps(asdict(alarm), indent=1, sort_keys=True))
        return True

    def pending(self) -> list[Alarm]:
        """Alarms not yet delivered, the oldest first."""
        return [a for a in self.alarms() if not self._path(a.id, ".delivered").exists()]

    def alarms(self) -> list[Alarm]:
        """Every alarm ever raised, the oldest first."""
        stored = (json.loads(path.read_text()) for path in self._folder.glob("*.json"))
        return sorted((Alarm.from_json(one) for one in stored), key=lambda one: (one.since, one.id))

    def delivered(self, alarm_id: str) -> None:
        """Mark it; marking twice is marking once. ValueError for an alarm that was never put."""
        if not self._path(alarm_id, ".json").exists():
            raise ValueError(
                f"got {alarm_id!r}, wanted the id of an alarm in {self._folder}: "
                "mark only what `pending` gave"
            )
        write_whole(self._path(alarm_id, ".delivered"), "")

    def _path(self, alarm_id: str, suffix: str) -> Path:
        if not _ID.fullmatch(alarm_id):
            raise ValueError(
                f"got alarm id {alarm_id!r}, wanted up to 100 letters, digits, '.', '_' or '-'"
            )
        return self._folder / (alarm_id + suffix)


def write_whole(path: Path, text: str) -> None:
    """Replace a file in one step, on the disk too: readers see the old text or the new."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:  # killed by a signal as well: nothing half written stays
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def sweep(folder: Path) -> None:
    """Remove what writers that were killed left half written, an hour and more ago."""
    for part in folder.glob(".*.part"):
        with suppress(FileNotFoundError):  # another sweeper was faster
            if part.stat().st_mtime < time.time() - 3600:
                part.unlink()
