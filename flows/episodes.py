"""Retrains that somebody besides a release wants: an alarm, the calendar. Asked for until they end.

What answers an alarm is over in seconds and only notes in the ledger that a retrain is wanted; the
reconcile starts it in its turn, and again where it was cut short. Knows the ledger and the
registry; decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flows.ledger import entries, note
from flows.runs import stands

if TYPE_CHECKING:
    from configuration.settings import Settings
    from registry.store import Store

WANTED, OVER = "wanted", "over"  # words of the ledger


def want_retrain(
    found: Settings, pairing: str, release: str, cause: str, why: str, *, rank: str = "alarm"
) -> str:
    """Note that a retrain of that release is wanted because of `cause`, an alarm's id or such; the
    key that it has. Asked twice, it is wanted once."""
    key = f"retrain:{pairing}:{release}:{cause}"
    facts = {"work": key, "release": release, "cause": cause, "why": why, "rank": rank}
    note(found.home, f"{key}:{WANTED}", WANTED, pairing, **facts)
    return key


def open_retrains(
    registry: Store, found: Settings, pairing: str, *, inputs: str
) -> Iterator[dict[str, Any]]:
    """Those of a pairing that are wanted and not over, the oldest first. One whose release is
    neither the newest nor the one that users are to stay on is over. Raises RegistryError."""
    noted = [entry for entry in entries(found.home) if entry["pairing"] == pairing]
    closed = {entry["work"] for entry in noted if entry["what"] == OVER}
    wanted = [e for e in noted if e["what"] == WANTED and e["work"] not in closed]
    if not wanted:
        return
    newest = max(registry.releases(pairing), key=lambda one: one.version, default=None)
    pinned = registry.pinned(pairing)
    current = {one.digest for one in (newest, pinned) if one is not None}
    for entry in wanted:
        key, release = entry["work"], entry["release"]
        word, why = stands(key, inputs=inputs)
        if release not in current:
            word, why = "done", "another release came meanwhile"
        if word in ("done", "cancelled"):  # given up, it stays wanted: a repair may help
            note(found.home, f"{key}:{OVER}", OVER, pairing, work=key, why=why)
            continue
        parameters = {key: entry[key] for key in ("pairing", "release", "cause")}
        yield {
            **{"flow": "retrain", "parameters": parameters, "key": key, "why": entry["why"]},
            **{"rank": entry["rank"], "since": entry["at"]},
        }
