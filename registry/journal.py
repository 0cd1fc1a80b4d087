"""The journal of a pairing's promotions: one order of them that every host sees alike.

MLflow has no compare-and-set, but it numbers versions: two that are made at once get different
numbers, whichever hosts ask, since the number is a primary key of its database, and whoever sees
number n sees every lower one. So each promotion first becomes a version of `<pairing>.journal`,
which says what it wants and which entry it follows. Of two that follow the same entry the lower
number counts and the other is void, and everybody who reads works out the same. What follows from
an entry that counts (aliases, tags, pages) can be written by anyone, at any later time, again.

Knows MLflow's versions and tags; decides nothing about pairs.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

from registry.door import speaking
from registry.markdown import plain

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion

    from registry.store import Store

SOURCE = "paceline:/journal"  # MLflow wants one of every version; there is nothing at it
WINDOW = 100  # entries that are looked at first; more only where none of them is finished
DONE, VOID = "done", "void"
DELETED = VOID + ": v{version} was deleted meanwhile"
OUTCOME = "outcome"
ABOUT = (
    "The order in which pairs of `{pairing}` became champion; each version is one promotion or "
    "rollback. Paceline writes and reads it, and goes by the numbers of the versions, so nothing "
    "of it should be deleted. The pairs are at [{pairing}](#/models/{pairing})."
)


@dataclass(frozen=True, slots=True)
class Entry:
    """What one promotion wants."""

    action: str  # "promote", "rollback", or "adopt" for an alias that was moved by hand
    version: int  # of the pair that is to be champion
    instead_of: int | None  # the champion that it was decided against
    after: int  # the entry that was the last when it was decided; 0: none
    at: str  # ISO 8601
    reason: str = ""  # why the one before was left, for a rollback
    force: str = ""  # why a pair without a PASS is promoted
    pin: str = ""  # digest of the release to stay on from now, "lifted", or empty: as it was
    by: str = field(default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}")
    token: str = field(default_factory=lambda: uuid4().hex)  # one a decision, sent twice or not
    number: int = 0  # MLflow's; 0 until it is written
    outcome: str = ""  # "done", "void …", or empty: not finished yet

    @property
    def finished(self) -> bool:
        """Whether all that follows from it was written, or was given up."""
        return bool(self.outcome)

    @property
    def deleted(self) -> bool:
        """Whether it was given up because its pair was deleted meanwhile, on another host say."""
        return self.outcome == DELETED.format(version=self.version)


def journal_name(pairing: str) -> str:
    """The registered model that holds the journal; a pairing's name has no dot."""
    return f"{pairing}.journal"


def that_count(entries: Sequence[Entry], *, whole: bool = True) -> list[Entry]:
    """Those that took or will take effect, oldest first; `entries` are in the order of numbers.

    One counts if it follows the last that counted before it. One that was finished did, even where
    its forerunner was deleted since. Where the journal is not `whole`, its beginning missing, the
    first finished one is the ground to stand on, and what is older is left out.
    """
    counting: list[Entry] = []
    for entry in entries:
        last = counting[-1].number if counting else 0
        follows = entry.after == last and (whole or bool(counting))
        if entry.finished or follows:
            counting.append(entry)
    return counting


def read(store: Store, pairing: str) -> list[Entry]:
    """The entries that count, oldest first; of a long journal the newest. Two queries at most."""
    with speaking(store.url, f"reading the journal of {pairing}"):
        entries, whole = _entries(store, pairing, WINDOW)
        if not whole and not any(entry.finished for entry in entries):
            entries, whole = _entries(store, pairing, None)
    return that_count(entries, whole=whole)


def append(store: Store, pairing: str, entry: Entry) -> None:
    """Write the entry. Whether it counts is known when the journal is read again.

    `StoreError` where MLflow refused or is away; the entry may be there all the same, where only
    the answer was lost, and counts then.
    """
    name = journal_name(pairing)
    store.create_model(name, kind="journal", description=ABOUT.format(pairing=pairing))
    with speaking(store.url, f"noting what is to be champion of {pairing}"):
        store.client.create_model_version(
            name,
            source=SOURCE,
            tags=_tags(entry),
            description=_told(pairing, entry),
            await_creation_for=0,
        )


def finish(store: Store, pairing: str, entry: Entry, outcome: str) -> None:
    """Note that nothing more is to be done for the entry."""
    with speaking(store.url, f"closing entry {entry.number} of {pairing}'s journal"):
        store.client.set_model_version_tag(
            journal_name(pairing), str(entry.number), OUTCOME, outcome
        )


def _entries(store: Store, pairing: str, limit: int | None) -> tuple[list[Entry], bool]:
    """The newest `limit` of all entries, in the order of their numbers, and whether that is all."""
    found = store.versions(journal_name(pairing), limit=limit)
    entries = [entry for version in found if (entry := _entry(version)) is not None]
    entries.sort(key=lambda entry: entry.number)
    return entries, limit is None or len(found) < limit


def _tags(entry: Entry) -> dict[str, str]:
    written = {
        "action": entry.action,
        "version": str(entry.version),
        "instead_of": "" if entry.instead_of is None else str(entry.instead_of),
        "after": str(entry.after),
        "at": entry.at,
        "reason": entry.reason,
        "force": entry.force,
        "pin": entry.pin,
        "by": entry.by,
        "token": entry.token,
    }
    return {name: value for name, value in written.items() if value}


def _entry(version: ModelVersion) -> Entry | None:
    """None for a version that somebody made by hand."""
    tags: Mapping[str, str] = version.tags

    def told(name: str) -> str:
        return tags.get(name, "")

    try:
        return Entry(
            action=told("action"),
            version=int(told("version")),
            instead_of=int(told("instead_of")) if told("instead_of") else None,
            after=int(told("after")),
            at=told("at"),
            reason=told("reason"),
            force=told("force"),
            pin=told("pin"),
            by=told("by"),
            token=told("token"),
            number=int(version.version),
            outcome=tags.get(OUTCOME, ""),
        )
    except ValueError:
        return None


def _told(pairing: str, entry: Entry) -> str:
    """The entry's page; MLflow's list shows how it begins, as it is written."""
    place = f"in place of v{entry.instead_of}" if entry.instead_of else "as the first champion"
    if entry.instead_of == entry.version:
        place = "where it was champion already"
    lines = [f"v{entry.version} promoted, {place}."]
    if entry.action == "rollback":
        lines = [f"Back to v{entry.version}, from v{entry.instead_of}."]
    if entry.action == "adopt":
        lines = [f"v{entry.version} taken over: its alias was moved by hand."]
    lines += [f"Because: {plain(entry.reason)}."] if entry.reason else []
    lines += [f"Forced: {plain(entry.force)}."] if entry.force else []
    if entry.pin:
        lifted = "No release is pinned any more."
        lines.append(lifted if entry.pin == "lifted" else f"Pinned to release `{entry.pin[:12]}`.")
    numbers = dict.fromkeys(filter(None, [entry.version, entry.instead_of]))
    links = " and ".join(f"[v{n}](#/models/{pairing}/versions/{n})" for n in numbers)
    return "\n\n".join([*lines, f"At {entry.at}, by `{entry.by}`. See {links}."])
