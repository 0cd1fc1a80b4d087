"""The alarm outbox: a folder that holds each notice once until every channel has delivered it.

Knows files and fixed ids; knows nothing of who delivers or to whom. A notice is `<id>.json`; a
channel that delivered it leaves `<id>.<channel>` beside it (`<id>.delivered` for `respond`, which
was there first), one that failed `<id>.<channel>.tries`, and what was done about it is
`<id>.response`. Each appears whole or not at all, so a process may be killed at any moment, and
raising a notice again stays without effect. A file that cannot be read stops no other.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from monitoring.notices import Notice, Phase
from monitoring.whole import sweep, write_whole
from speculation.records import Alarm

log = logging.getLogger("paceline.monitoring.outbox")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
CHANNELS = ("respond", "event", "webhook")
MARKS = {"respond": ".delivered"}  # of the other channels: their name
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 30.0, 3600.0  # after a failure, doubled each time
GIVE_UP_SECONDS = 24 * 3600.0  # of every channel but `respond`: stale news is none


@dataclass(frozen=True, slots=True)
class Stored:
    """A notice as it lies there."""

    notice: Notice
    bare: bool  # as it was stored before there were channels


class Outbox:
    """`put` where an alarm is raised, `pending` and `delivered` where it is delivered."""

    def __init__(self, folder: Path) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._named: set[str] = set()  # unreadable files that the log has named
        sweep(self._folder)

    def put(self, told: Alarm | Notice) -> bool:
        """Store it unless its id is known; True when it is new. ValueError for an unfit id."""
        notice = Notice.raised(told) if isinstance(told, Alarm) else told
        path = self._path(notice.id, ".json")
        if path.exists():
            return False
        write_whole(path, json.dumps(notice.to_json(), indent=1, sort_keys=True))
        return True

    def pending(self) -> list[Alarm]:
        """Alarms that nobody has responded to yet, the oldest first."""
        return [notice.alarm for notice in self.due("respond")]

    def alarms(self) -> list[Alarm]:
        """Every alarm ever raised, the oldest first."""
        found = [one.alarm for one in self.notices() if one.phase is Phase.RAISED]
        return sorted(found, key=lambda one: (one.since, one.id))

    def notices(self) -> list[Notice]:
        """Everything that is there to tell or was told, the oldest first."""
        return [one.notice for one in self._read()]

    def due(self, channel: str, *, now: float | None = None) -> list[Notice]:
        """What a channel is to deliver, the oldest first.

        `respond` gets raised alarms that are not over. The others get every notice, but for a day
        at most and, after a failure, not before its time; what is over before it could be told is
        told as over alone.
        """
        now = time.time() if now is None else now
        stored = self._read()
        ended = _ended(stored)
        found = []
        for one in stored:
            notice = one.notice
            past = notice.phase is not Phase.RESOLVED and notice.at <= ended.get(
                notice.alarm.id, -1
            )
            if past or self._done(one, channel):
                continue
            if channel == "respond":
                if notice.phase is Phase.RAISED:
                    found.append(notice)
            elif now - notice.at <= GIVE_UP_SECONDS and self._tries(notice, channel) <= now:
                found.append(notice)
        return found

    def delivered(self, notice_id: str, channel: str = "respond") -> None:
        """Mark it; marking twice is marking once. ValueError for what was never put."""
        self._known(notice_id)
        write_whole(self._path(notice_id, _mark(channel)), "")
        self._path(notice_id, f".{channel}.tries").unlink(missing_ok=True)

    def failed(self, notice_id: str, channel: str, error: str, *, now: float) -> None:
        """Write down that it could not be delivered; it is due again after a while."""
        self._known(notice_id)
        path = self._path(notice_id, f".{channel}.tries")
        n = int(_stored(path).get("n", 0)) + 1
        wait = min(FIRST_WAIT_SECONDS * 2 ** min(n - 1, 20), LONGEST_WAIT_SECONDS)
        write_whole(path, json.dumps({"n": n, "next": now + wait, "error": error[:500]}))

    def responded(self, alarm_id: str, *, action: str, done: str, at: float) -> None:
        """Write down what was done about an alarm, for `response` and whoever looks."""
        self._known(alarm_id)
        text = json.dumps({"action": action, "done": done, "at": at})
        write_whole(self._path(alarm_id, ".response"), text)

    def response(self, alarm_id: str) -> dict[str, Any] | None:
        """What was done about it; None where nothing was yet."""
        return _stored(self._path(alarm_id, ".response")) or None

    def open(self) -> list[Alarm]:
        """Alarms that are not over, the oldest first; of those that a server raised by itself
        nobody says that they are over, so they leave when they have been responded to."""
        stored = self._read()
        ended, latest = _ended(stored), {}
        for one in stored:
            alarm = one.notice.alarm
            served = alarm.action == "" and self._done(one, "respond")
            if one.notice.phase is not Phase.RESOLVED and not served:
                latest[alarm.id] = one.notice
        return [
            notice.alarm for notice in latest.values() if notice.at > ended.get(notice.alarm.id, -1)
        ]

    @property
    def unreadable(self) -> list[str]:
        """Names of files that hold no notice: torn by a full disk, or somebody else's."""
        return sorted(path.name for path in self._folder.glob("*.json") if not _readable(path))

    def prune(self, before: float) -> int:
        """Remove what was responded to, or was over, before that time; gives how many notices."""
        gone, stored = 0, self._read()
        ended = _ended(stored)
        for one in stored:
            notice = one.notice
            waits = (
                notice.phase is Phase.RAISED
                and notice.at > ended.get(notice.alarm.id, -1)
                and not self._done(one, "respond")
            )
            if notice.at < before and not waits:
                for path in self._folder.glob(f"{notice.id}.*"):
                    if path.name.removeprefix(notice.id) in self._suffixes():
                        path.unlink(missing_ok=True)
                gone += 1
        return gone

    def _suffixes(self) -> set[str]:
        tries = {f".{channel}.tries" for channel in CHANNELS}
        return {".json", ".response", *map(_mark, CHANNELS), *tries}

    def _read(self) -> list[Stored]:
        found = []
        for path in self._folder.glob("*.json"):
            one = _readable(path)
            if one is not None:
                found.append(one)
            elif path.name not in self._named and path.exists():
                self._named.add(path.name)
                log.error(
                    "%s holds no alarm and is left alone: look at it, then move it away", path
                )
        return sorted(found, key=lambda one: (one.notice.at, one.notice.id))

    def _done(self, one: Stored, channel: str) -> bool:
        """An alarm that was stored and taken before there were channels is old news on all."""
        marks = {_mark(channel), _mark("respond")} if one.bare else {_mark(channel)}
        return any(self._path(one.notice.id, mark).exists() for mark in marks)

    def _tries(self, notice: Notice, channel: str) -> float:
        """Before when it is not to be tried again."""
        found = _stored(self._path(notice.id, f".{channel}.tries")).get("next", 0.0)
        return float(found) if isinstance(found, int | float) else 0.0

    def _known(self, notice_id: str) -> None:
        if not self._path(notice_id, ".json").exists():
            raise ValueError(
                f"got {notice_id!r}, wanted the id of an alarm in {self._folder}: "
                "mark only what `pending` gave"
            )

    def _path(self, notice_id: str, suffix: str) -> Path:
        if not _ID.fullmatch(notice_id):
            raise ValueError(
                f"got alarm id {notice_id!r}, wanted up to 100 letters, digits, '.', '_' or '-'"
            )
        return self._folder / (notice_id + suffix)


def _ended(stored: Sequence[Stored]) -> dict[str, float]:
    """When each alarm was last over, for those that ever were."""
    over = [one.notice for one in stored if one.notice.phase is Phase.RESOLVED]
    return {one.alarm.id: one.at for one in over}  # the latest is last


def _mark(channel: str) -> str:
    return MARKS.get(channel, f".{channel}")


def _readable(path: Path) -> Stored | None:
    """What a file holds; None where that is no notice of ours, or its own name is another's."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        notice = Notice.from_json(stored)
        if path.name != notice.id + ".json" or not _fits(notice):
            return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return Stored(notice, "notice" not in stored)


def _fits(notice: Notice) -> bool:
    """Do the fields that everybody reads hold what they should?"""
    alarm = notice.alarm
    texts = (alarm.id, alarm.pair, alarm.release, alarm.cause, alarm.statement, alarm.action)
    return all(isinstance(text, str) for text in texts) and isinstance(alarm.since, int | float)


def _stored(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
