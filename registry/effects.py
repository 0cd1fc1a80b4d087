"""What follows from an entry of the journal: aliases, tags, pages. May be written again by anyone.

`heal` is what whoever looks next calls: it ends what a killed promotion began. Decides nothing.
"""

from __future__ import annotations

from registry import journal
from registry.door import insisting, speaking
from registry.errors import ForeignVersionError, NotFoundError
from registry.journal import DELETED, DONE, VOID, Entry
from registry.pinning import LIFTED, pin, unpin
from registry.store import Store
from registry.story import with_standing
from registry.versions import (
    CANDIDATE,
    CHAMPION,
    FORCED,
    PREVIOUS,
    PROMOTED,
    REPLACED,
    ROLLED_BACK,
    PairVersion,
)


def heal(store: Store, pairing: str) -> Entry | None:
    """End what a killed promotion began; gives the journal's last entry. Costs a query or two where
    there is nothing to end. Two hosts that heal at once write the same."""
    with store.writing(pairing):
        return end_last(store, pairing)


def unfinished(store: Store, pairing: str) -> Entry | None:
    """The journal's last entry, where what follows from it is still to be written."""
    counting = journal.read(store, pairing)
    return counting[-1] if counting and not counting[-1].finished else None


def end_last(store: Store, pairing: str) -> Entry | None:
    counting = journal.read(store, pairing)
    if not counting:
        return None
    last = counting[-1]
    if not last.finished:
        outcome = insisting(lambda: apply(store, pairing, last))
        insisting(lambda: journal.finish(store, pairing, last, outcome))
    return last


def apply(store: Store, pairing: str, entry: Entry) -> str:
    """Everything that follows from an entry that counts; may be said twice. Gives its outcome."""
    client, number = store.client, str(entry.version)
    before = store.alias(pairing, CHAMPION)
    if before not in (None, entry.instead_of, entry.version) and not _stale(store, pairing, before):
        return f"{VOID}: the alias was moved by hand to v{before} meanwhile"
    if pair_or_none(store, pairing, entry.version) is None:
        return DELETED.format(version=entry.version)
    left = entry.instead_of if entry.instead_of != entry.version else None
    if pair_or_none(store, pairing, left) is None:
        left = None  # deleted by hand, and its alias went with it; or it never was a pair
    with speaking(store.url, f"promoting {pairing} v{number}"):
        if entry.force:
            client.set_model_version_tag(pairing, number, FORCED, entry.force)
        if entry.action == "rollback" and left is not None:
            client.set_model_version_tag(pairing, str(left), ROLLED_BACK, entry.reason)
        if left is not None:
            client.set_registered_model_alias(pairing, PREVIOUS, str(left))
        _pin(store, pairing, entry)  # before the alias, so that no look finds one without the other
        if journal.read(store, pairing)[-1].number != entry.number:
            return DONE  # somebody else wrote all of it, and the next entry too
        client.set_registered_model_alias(pairing, CHAMPION, number)
    later = journal.read(store, pairing)[-1]
    if entry.action == "rollback" and left not in (None, later.version):
        _unforce(store, pairing, left)
    if later.number != entry.number:  # and came in between: what it wants is said again
        apply(store, pairing, later)
        return DONE
    if store.alias(pairing, CHAMPION) != entry.version:
        return f"{VOID}: the alias was moved by hand at the same time"
    champion = pair_or_none(store, pairing, entry.version)
    if champion is not None:
        tidy(store, champion, entry.at, replaced=left, anew=entry.action != "adopt")
    _note_standing(store, pair_or_none(store, pairing, left))
    return DONE


def _pin(store: Store, pairing: str, entry: Entry) -> None:
    if entry.pin == LIFTED:
        unpin(store, pairing)
    elif entry.pin:
        try:
            pin(store, pairing, entry.pin, entry.force or "its alias was moved there by hand")
        except NotFoundError:  # the release was deleted by hand; its pairs are still pairs
            return


def _unforce(store: Store, pairing: str, left: int | None) -> None:
    """The reason for which a pair was promoted is none to serve it once it was rolled back: the
    journal keeps it. Asked for last, so that who comes late takes it from no champion."""
    pair = pair_or_none(store, pairing, left)
    if pair is not None and pair.forced:
        with speaking(store.url, f"noting that {pairing} v{left} was rolled back"):
            store.client.delete_model_version_tag(pairing, str(left), FORCED)


def _stale(store: Store, pairing: str, version: int) -> bool:
    """Whether the alias names what an earlier entry wanted: a write that came late, no person's."""
    return any(entry.version == version for entry in journal.read(store, pairing)[:-1])


def tidy(
    store: Store,
    champion: PairVersion,
    stamp: str,
    *,
    replaced: int | None = None,
    anew: bool = False,
) -> PairVersion:
    """What else is said of a champion, and may be missing when one was killed. Gives it again."""
    pairing, number = champion.pairing, str(champion.version)
    with speaking(store.url, f"recording the promotion of {pairing} v{number}"):
        if CANDIDATE in champion.aliases:
            store.client.delete_registered_model_alias(pairing, CANDIDATE)
        if replaced is not None:
            store.client.set_model_version_tag(pairing, number, REPLACED, str(replaced))
        if anew or not champion.promoted:
            store.client.set_model_version_tag(pairing, number, PROMOTED, stamp)
    pairs = store.describe_pairing(pairing)
    found = next((pair for pair in pairs if pair.version == champion.version), champion)
    _note_standing(store, found)
    return found


def pair_or_none(store: Store, pairing: str, number: int | None) -> PairVersion | None:
    """The pair with that number; None where there is none, or it is no pair."""
    try:
        return None if number is None else store.pair(pairing, number)
    except ForeignVersionError:
        return None


def _note_standing(store: Store, pair: PairVersion | None) -> None:
    """Say on the version's page what became of it."""
    if pair is None:
        return
    number = str(pair.version)
    with speaking(store.url, f"noting what became of {pair.pairing} v{number}"):
        page = store.client.get_model_version(pair.pairing, number).description or ""
        if (said := with_standing(page, pair)) != page:
            store.client.update_model_version(pair.pairing, number, said)
