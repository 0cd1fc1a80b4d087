"""What `pace` is asked and told: rows that may draft, what their round took, what came of it.

Plain records: no tokens, no models, no clocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from speculation.hazards import RequestHazards


class State(StrEnum):
    LEARNING = "learning"
    DRAFTING = "drafting"
    OFF_BY_REJECTION = "off_by_rejection"  # with the hazards it once had, drafting would pay
    OFF_BY_COST = "off_by_cost"  # it would not: the load is too high, or the draft too dear


@dataclass(slots=True)
class RequestPace:
    """What a request keeps for `Pace` while it runs; a new one for each request."""

    hazards: RequestHazards = field(default_factory=RequestHazards)
    worth: bool | None = None  # whether drafting paid for it when last decided; None: never decided
    seen: bool = False


@dataclass(frozen=True, slots=True)
class Seat:
    """A row that may draft in the coming round."""

    request: RequestPace
    budget: int  # tokens it may still emit
    behind: int = 0  # committed tokens the draft must read first, when more than a round's block


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one round of the whole batch. Times end where the device has finished."""

    batch: int  # rows in the target's forward
    context: int  # tokens of the longest row
    width: int  # positions of the target's forward
    target_seconds: float
    draft_seconds: float  # with reading what was committed, and looks in vain; 0 if none was asked
    overhead_seconds: float  # the rest of the round
    drafted: int = 0  # tokens of the longest draft
    drafting: int = 0  # rows that drafted
    in_vain: int = 0  # rows for which the drafter was asked and had nothing
    caught_up: int = 0  # the sum of the drafting seats' `behind`


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row's round: positions 1 to `judged` were compared, 1 to `accepted` kept.

    Whoever chose that row's K: a hazard at a position does not depend on it.
    """

    request: RequestPace
    judged: int
    accepted: int
