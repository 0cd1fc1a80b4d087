"""What the monitor remembers across restarts, in one file that is replaced whole.

Knows the cursor into the exchange log, the pairs watched and the swaps already marked; knows
nothing of where they come from. A file of another version or that cannot be read is not believed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from monitoring.watched import Watched
from monitoring.whole import write_whole

VERSION = 1
MOST_PAIRS = 32  # the pairs least lately served are forgotten first


class StateError(ValueError):
    """The stored state cannot be gone on from."""


@dataclass(slots=True)
class State:
    """Everything that outlives a poll."""

    cursor: float = 0.0  # `logged` of the newest exchange taken
    swap_marked: float = 0.0  # time of the newest swap in the series
    watched: list[Watched] = field(default_factory=list)  # the latest served last

    def of(self, pair: str, drafter: str) -> Watched:
        """The pair's record, made if it is new, and moved to the end of the line."""
        found = next(
            (one for one in self.watched if (one.pair, one.drafter) == (pair, drafter)), None
        )
        if found is None:
            found = Watched(pair, drafter)
        self.watched = [one for one in self.watched if one is not found][1 - MOST_PAIRS :]
        self.watched.append(found)
        return found


def save(state: State, path: Path) -> None:
    """Write it: a kill at any moment leaves the old state or the new. OSError when it cannot."""
    stored = {
        "version": VERSION,
        "cursor": state.cursor,
        "swap_marked": state.swap_marked,
        "watched": [one.to_json() for one in state.watched],
    }
    write_whole(path, json.dumps(stored, separators=(",", ":")))


def load(path: Path) -> State:
    """Read it back; a fresh one where there is none. StateError when it cannot be believed."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return State()
    except ValueError as error:
        raise StateError(
            f"got {path} that is no JSON ({error}): move it away to start afresh"
        ) from error
    try:
        if stored["version"] != VERSION:
            raise ValueError(f"its version is {stored['version']}")
        return State(
            stored["cursor"],
            stored["swap_marked"],
            [Watched.from_json(one) for one in stored["watched"]],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(
            f"got {path} with {error!r}, wanted version {VERSION} as this code writes it: "
            "move it away to start afresh"
        ) from error
