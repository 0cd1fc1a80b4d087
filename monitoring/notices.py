"""What is told of an alarm: that it was raised, that it is still open, that it is over.

A notice's id is fixed by its alarm and phase, so that telling it twice is telling it once. Knows
nothing of when one is due (`alarms.py`) or how it travels (`outbox.py`, `webhook.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from speculation.records import Alarm


class Phase(StrEnum):
    RAISED = "raised"
    AGAIN = "again"  # open for long, or come back too often
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to tell."""

    id: str
    phase: Phase
    at: float  # seconds since the epoch
    alarm: Alarm

    @classmethod
    def raised(cls, alarm: Alarm) -> Notice:
        return cls(alarm.id, Phase.RAISED, alarm.raised or alarm.since, alarm)

    def to_json(self) -> dict[str, Any]:
        told = {"id": self.id, "phase": str(self.phase), "at": self.at}
        return {"notice": told, "alarm": asdict(self.alarm)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Notice:
        """Also of a bare alarm, as it was stored before notices were. Raises KeyError, TypeError
        or ValueError for what is neither."""
        if "notice" not in stored:
            return cls.raised(Alarm.from_json(stored))
        told, alarm = stored["notice"], Alarm.from_json(stored["alarm"])
        return cls(str(told["id"]), Phase(told["phase"]), float(told["at"]), alarm)
