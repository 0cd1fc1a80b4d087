"""Whose turn it is to compute: pure functions.

Heavy work of one home never runs side by side, and never waits inside a run either: a run that
waits holds one of the worker's few places, and four pairings with a release each would hold all of
them for hours, with alarms behind. So it is started when it can begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from flows.attempts import Word

Rank = Literal["release", "alarm", "refresh"]
RANKS: dict[str, int] = {"release": 0, "alarm": 1, "refresh": 2}


def in_turn(
    wanted: Sequence[dict[str, Any]],  # each with key, rank and since: when it came up, seconds
    words: dict[str, Word],  # how each stands, by its key
    busy: Sequence[str],  # names of the runs that compute now
) -> tuple[str | None, dict[str, str]]:
    """The key of what to start now, if anything, and why each of the others that are due waits.

    Releases come before alarms, and both before what the calendar asks for; of one kind, the one
    that has waited longest.
    """
    due = [one for one in wanted if words[one["key"]] == "due"]
    due.sort(key=lambda one: (RANKS[one["rank"]], one["since"], one["key"]))
    if not due:
        return None, {}
    if busy:
        why = f"waits its turn: {', '.join(busy)} computes"
        return None, {one["key"]: why for one in due}
    first, *rest = (str(one["key"]) for one in due)
    return first, dict.fromkeys(rest, f"waits its turn: {first} begins")
