"""What the loop may do by itself, and when it calls a person. Only the flows read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CRON_FIELDS = 5


@dataclass(frozen=True, slots=True)
class Limits:
    """What the loop may do by itself, and when it calls a person."""

    approval: Literal["automatic", "person"] = "automatic"  # who promotes a pair that passed
    most_prompts: int = 1024  # that a pair is measured on while it is INCONCLUSIVE; then a person
    retrains_a_day: int = 4  # of one pairing; a release's first one is made all the same
    compute_minutes_a_day: float = 720.0  # that retrains of one pairing may take together
    cooldown_minutes: float = 60.0  # between two answers to one pairing's alarms of one cause
    failed_candidates: int = 3  # in a row for one release; then a person is called
    turns_a_day: int = 3  # rollbacks and fall-backs; more are a loop, and a person is called
    refresh: str = ""  # cron line of a retrain by the clock, such as "0 3 * * 1"; empty: never

    def __post_init__(self) -> None:
        for name in ("most_prompts", "failed_candidates", "turns_a_day"):
            if getattr(self, name) < 1:
                raise ValueError(f"got {name} = {getattr(self, name)}, wanted 1 or more")
        for name in ("retrains_a_day", "compute_minutes_a_day", "cooldown_minutes"):
            if getattr(self, name) < 0:
                raise ValueError(f"got {name} = {getattr(self, name)}, wanted 0 or more")
        if self.refresh and len(self.refresh.split()) != CRON_FIELDS:
            raise ValueError(
                f"got refresh = {self.refresh!r}, wanted {CRON_FIELDS} fields of a cron line, "
                "or nothing"
            )
