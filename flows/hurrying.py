"""Has the next look happen sooner where something new lies in the home: an alarm, or a hint.

A thread of the worker. What it misses the next look finds by itself, a minute later at most.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger("paceline.flows")

LOOK_SECONDS = 1.0
BETWEEN_SECONDS = 2.0  # two looks that are asked for
FOLDERS = ("monitoring/outbox", "flows/hints")  # under the home; a new *.json is something new


def hint(home: Path, name: str) -> None:
    """Have the worker of that home look soon; `name` says what for, and only once."""
    folder = home / "flows" / "hints"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").touch()


def fresh(home: Path, seen: dict[str, tuple[int, set[str]]]) -> list[str]:
    """Names of what is new since the call before that was given the same `seen`, which is brought
    up to date; of the first call nothing is."""
    found = []
    for name in FOLDERS:
        folder = home / name
        try:
            changed = folder.stat().st_mtime_ns
        except OSError:
            changed = -1
        before = seen.get(name)
        if before is not None and before[0] == changed:
            continue
        names = {path.name for path in folder.glob("*.json")}
        found += sorted(names - before[1]) if before is not None else []
        seen[name] = (changed, names)
    return found


def hurry_looks(
    home: Path,
    look: Callable[[str], object],  # has a look begin, under a key of its own
    *,
    ended: threading.Event,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Until `ended`, ask for a look where there is something new."""
    seen: dict[str, tuple[int, set[str]]] = {}
    asked, last = float("-inf"), ""
    fresh(home, seen)
    while not ended.wait(LOOK_SECONDS):
        last = (fresh(home, seen) or [last])[-1]
        if not last or clock() < asked + BETWEEN_SECONDS:
            continue
        try:
            look(f"hurry:{last}")
        except Exception as error:  # the thread's edge: Prefect is away, and the schedule is not
            log.warning("a look could not be hurried: %s", error)
        asked, last = clock(), ""
