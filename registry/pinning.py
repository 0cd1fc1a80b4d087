"""A release that users are to stay on, whatever is released: the pin of a pairing.

Going back to an earlier release is a person's decision, and would be undone as soon as the newest
has waited long enough. So it leaves a pin: the alias `pinned` on that release, one row of MLflow's
database, with the reason in a tag. While it is there nothing but a person's own promotion changes
which release is served. Knows the store and no journal; decides nothing about drafts.
"""

from __future__ import annotations

from collections.abc import Mapping

from registry.door import speaking
from registry.errors import NotFoundError
from registry.store import Store
from registry.versions import PINNED, PINNED_WHY, PairVersion, ReleaseVersion, target_name

LIFTED = "lifted"  # in an entry of the journal: no release is pinned from now on


def pin_after(
    wanted: str,  # digest of the release that is to be served
    before: str | None,  # and of the one that is
    pinned: str | None,
    numbers: Mapping[str, int],  # of the releases by their digests
) -> str:
    """What a promotion by a person makes of the pin: a digest, LIFTED, or empty: as it was."""
    if before is not None and numbers.get(wanted, 0) < numbers.get(before, 0):
        return wanted
    if pinned is None or pinned == wanted:
        return ""
    newest = max(numbers.values(), default=0)
    return LIFTED if numbers.get(wanted, 0) == newest else wanted


def reason_against(pinned: ReleaseVersion | None, wanted: PairVersion, *, by_hand: bool) -> str:
    """Why the pair may not become champion now, for the pin alone."""
    if pinned is None or by_hand or pinned.digest == wanted.release:
        return ""
    return (
        f"v{wanted.version} is of another release than {said(pinned)}: `paceline promote "
        f"{wanted.version}` by hand changes it, or `paceline pin --lift`"
    )


def pin(store: Store, pairing: str, digest: str, why: str) -> ReleaseVersion:
    """Pin the pairing to the release with that digest. May be said twice. `NotFoundError` where it
    has no such release."""
    found = next((one for one in store.releases(pairing) if one.digest == digest), None)
    if found is None:
        raise NotFoundError(f"{pairing} has no release {digest[:12]}: nothing is pinned")
    name, number = target_name(pairing), str(found.version)
    with speaking(store.url, f"pinning {pairing} to release {number}"):
        store.client.set_model_version_tag(name, number, PINNED_WHY, why)
        store.client.set_registered_model_alias(name, PINNED, number)
    return found


def unpin(store: Store, pairing: str) -> ReleaseVersion | None:
    """Pin the pairing to nothing; gives the release that was pinned."""
    found = store.pinned(pairing)
    if found is not None:
        with speaking(store.url, f"lifting the pin of {pairing}"):
            store.client.delete_registered_model_alias(target_name(pairing), PINNED)
    return found


def said(pinned: ReleaseVersion) -> str:
    """The pin in words, for sentences."""
    why = f" ({pinned.pinned_why})" if pinned.pinned_why else ""
    return f"release {pinned.version} ({pinned.digest[:12]}), which the pairing is pinned to{why}"
