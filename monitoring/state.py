"""What the monitor remembers across restarts, in one file that is replaced whole.

Knows how far each source was read, the pairs watched, the swaps already marked and the alarms that
are open; knows nothing of where they come from. A file of the version before is taken over; one of
another, or that cannot be read, is not believed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monitoring.alarms import Alarms
from monitoring.baselines import Baseline
from monitoring.detectors.collapse import Collapse
from monitoring.detectors.cusum import Cusum
from monitoring.judges import Judges
from monitoring.learning import Learning
from monitoring.looked import Reached, Replica
from monitoring.watched import Watched
from monitoring.whole import write_whole
from monitoring.windows import Served

VERSION = 2
MOST_PAIRS = 32  # the pairs least lately served are forgotten first


class StateError(ValueError):
    """The stored state cannot be gone on from."""


@dataclass(slots=True)
class State:
    """Everything that outlives a poll."""

    reached: Reached = field(default_factory=Reached)
    swap_marked: float = 0.0  # time of the newest swap in the series
    watched: list[Watched] = field(default_factory=list)  # the latest served last
    alarms: dict[str, Any] = field(default_factory=dict)  # as `Alarms.to_json` gave it
    cursor: float = 0.0  # of a file of version 1, for the one source that there was

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

    def go_on(self, alarms: Alarms, urls: list[str]) -> None:
        """Hand over what others keep."""
        if self.alarms:
            alarms.restore(self.alarms)
        if self.cursor and len(urls) == 1:
            self.reached.replicas.setdefault(urls[0], Replica(self.cursor))
        self.cursor = 0.0


def save(state: State, path: Path) -> None:
    """Write it: a kill at any moment leaves the old state or the new. OSError when it cannot."""
    stored = {
        "version": VERSION,
        "sources": state.reached.to_json(),
        "swap_marked": state.swap_marked,
        "watched": [one.to_json() for one in state.watched],
        "alarms": state.alarms,
    }
    write_whole(path, json.dumps(stored, separators=(",", ":")))


def load(path: Path) -> State:
    """Read it back; a fresh one where there is none. StateError when it cannot be believed."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return State()
    except (ValueError, RecursionError) as error:
        raise StateError(
            f"got {path} that is no JSON ({error}): move it away to start afresh"
        ) from error
    try:
        if stored["version"] == 1:
            watched = [_of_version_1(one) for one in stored["watched"]]
            return State(Reached(), stored["swap_marked"], watched, {}, float(stored["cursor"]))
        if stored["version"] != VERSION:
            raise ValueError(f"its version is {stored['version']}")
        state = State(
            Reached.from_json(stored["sources"]),
            float(stored["swap_marked"]),
            [Watched.from_json(one) for one in stored["watched"]],
            dict(stored["alarms"]),
        )
        if state.alarms:
            Alarms().restore(state.alarms)
        return state
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StateError(
            f"got {path} with {error!r}, wanted version {VERSION} as this code writes it: "
            "move it away to start afresh"
        ) from error


def _of_version_1(stored: Mapping[str, Any]) -> Watched:
    """Its baselines and its fall so far; what it was about to learn it learns anew."""

    def baseline(key: str) -> Baseline | None:
        return None if stored[key] is None else Baseline.from_json(stored[key])

    watched = Watched(
        stored["pair"],
        stored["drafter"],
        stored["release"],
        stored["draft_len"],
        expected_release=stored["expected_release"],
        mismatched_since=stored["mismatched_since"],
        baseline=baseline("baseline"),
        reported=baseline("reported"),
        kept=[Served.from_json(one) for one in stored["kept"]],
        learning=Learning(on=bool(stored["learning"])),
    )
    if watched.baseline is not None:
        watched.judges.compare_with(watched.baseline)
    judges: Judges = watched.judges
    judges.cusum = Cusum(**stored["cusum"])
    judges.collapse = Collapse.from_json(stored["collapse"])
    return watched
