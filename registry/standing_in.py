"""A release is served without a draft of its own: before one is made, or after it went bad.

Such a pair gives the target's own output like any other and needs no making, so nothing has to be
waited for. It is marked, so that whoever makes drafts still sees one missing. Decides nothing about
when: that is the pairing's `on_release` and `max_wait_hours`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from registry import journal
from registry.adapters import adapter_set
from registry.door import speaking
from registry.effects import pair_or_none
from registry.errors import ForeignVersionError, ManifestError, NotFoundError
from registry.fingerprint import Release, fingerprint_draft
from registry.manifest import PairManifest
from registry.pinning import said
from registry.promotion import Outcome, Promotion, promote, rollback
from registry.store import Store
from registry.versions import CHAMPION, RELEASE, STANDS_IN, PairVersion
from speculation.records import WITHOUT_WEIGHTS


def go_live(
    store: Store,
    pairing: str,
    target: Path,
    release: Release,
    kind: str,  # "ngram" or "none"
    *,
    why: str,
    adapters: Mapping[str, str] | None = None,  # that it is served with: digests
    adapter_uris: Mapping[str, str] | None = None,  # and where they live
) -> Promotion:
    """Have `release`, which lives in `target`, served: with its newest pair that passed, where that
    was left as a candidate, else with a stand-in for its draft.

    Nothing is changed, and the statement says so, where a pair of this release is champion already,
    a newer release has come, or users are to stay on another one. Asked again after a kill, it goes
    on. Raises ValueError for another kind or an empty `why`, and what `Store.register_pair` and
    `promote` raise.
    """
    _check(kind, why)
    before = store.champion(pairing)
    if before is not None and before.release == release.digest:
        stands = f"v{before.version} serves release {release.digest[:12]} already"
        return Promotion(Outcome.ALREADY, stands, before, before)
    pinned = store.pinned(pairing)
    if pinned is not None and pinned.digest != release.digest:
        stays = f"users stay on {said(pinned)}: {release.digest[:12]} does not go live"
        return Promotion(Outcome.REFUSED, stays, before, before)
    newest = max(store.releases(pairing), key=lambda known: known.version, default=None)
    if newest is not None and newest.digest != release.digest:
        came = f"release {newest.version} is newer: {release.digest[:12]} does not go live any more"
        return Promotion(Outcome.REFUSED, came, before, before)
    expect = None if before is None else before.version
    # What passed here and was overtaken by another champion, or by a pin, is better than nothing.
    own = [
        pair
        for pair in store.pairs(pairing, having={RELEASE: release.digest})
        if pair.passed and not pair.rolled_back and pair.adapters == adapter_set(adapters or {})
    ]
    if own:
        return promote(store, pairing, own[0].version, expect=expect)
    manifest = PairManifest(
        release=release,
        release_uri=str(target),
        draft=fingerprint_draft(kind),
        context_measured=release.context_configured,  # nothing that could be worse farther out
        adapters=adapters or {},
        adapter_uris=adapter_uris or {},
    )
    made = _registered(store, pairing, manifest, why)
    return promote(store, pairing, made.version, expect=expect, force=why)


def fall_back(
    store: Store, pairing: str, kind: str, *, reason: str, leave: int | None = None
) -> Promotion:
    """Leave the champion for a pair of the same release without weights, made where there is none.

    `leave` is the champion that is to be left, for whoever may ask twice. The pair is marked, so
    that a draft of the release's own may follow it. Raises ValueError for another kind, and what
    `Store.register_pair` and `rollback` raise.
    """
    _check(kind, reason)
    try:
        before = store.champion(pairing)
    except ForeignVersionError:
        if leave is not None:
            raise
        return _leave_foreign(store, pairing, kind, reason)
    if before is None:
        return Promotion(Outcome.REFUSED, f"{pairing} has no champion to leave", None, None)
    if before.draft_kind == kind:
        stands = f"v{before.version}, the champion, is the {kind} draft already"
        return Promotion(Outcome.ALREADY, stands, before, before)
    made = _registered(store, pairing, _without_draft(store.manifest(before), kind), reason)
    return rollback(store, pairing, to=made.version, leave=leave, reason=reason)


def _leave_foreign(store: Store, pairing: str, kind: str, reason: str) -> Promotion:
    """Leave a champion that is no pair, which no server follows: what they serve is the champion
    before it that the journal knows, and its release is the one that stays."""
    found = store.alias(pairing, CHAMPION)
    bound = _served(store, pairing)
    if bound is None:
        told = (
            f"v{found}, the champion, is no pair, and no pair is on record that served before it: "
            "`paceline promote N` of a pair says which release is to be served"
        )
        return Promotion(Outcome.REFUSED, told, None, None)
    made = _registered(store, pairing, _without_draft(bound, kind), reason)
    force = f"fallen back to: {reason}"
    moved = promote(store, pairing, made.version, expect=found, force=force)
    if moved.outcome is not Outcome.PROMOTED:
        return moved
    told = f"v{made.version} is now champion, the {kind} draft; v{found}, which was, is no pair"
    return replace(moved, statement=told)


def _served(store: Store, pairing: str) -> PairManifest | None:
    """The newest pair that was champion by the journal and is still there."""
    for entry in reversed(journal.read(store, pairing)):
        pair = pair_or_none(store, pairing, entry.version)
        if pair is not None:
            try:
                return store.manifest(pair)
            except (NotFoundError, ManifestError):  # its files are gone: the one before it, then
                continue
    return None


def _without_draft(bound: PairManifest, kind: str) -> PairManifest:
    """The pair of the same release and adapters whose draft has no weights."""
    return PairManifest(
        release=bound.release,
        release_uri=bound.release_uri,
        draft=fingerprint_draft(kind),
        context_measured=bound.release.context_configured,
        adapters=bound.adapters,
        adapter_uris=bound.adapter_uris,
    )


def mark(store: Store, pair: PairVersion, why: str) -> None:
    """Note that the pair serves its release only until one of its own is made."""
    with speaking(store.url, f"marking {pair.pairing} v{pair.version}"):
        number = str(pair.version)
        store.client.set_model_version_tag(pair.pairing, number, STANDS_IN, why)


def _registered(store: Store, pairing: str, manifest: PairManifest, why: str) -> PairVersion:
    """The marked pair without weights; registered where there is none yet."""
    with tempfile.TemporaryDirectory() as files:
        made = store.register_pair(
            pairing, manifest, Path(files), report={}, verdict=None, description=f"Made: {why}."
        )
    mark(store, made, why)
    return made


def _check(kind: str, why: str) -> None:
    if kind not in WITHOUT_WEIGHTS or not why.strip():
        wanted = " or ".join(WITHOUT_WEIGHTS)
        raise ValueError(f"got {kind!r} because of {why!r}, wanted {wanted}, and a reason")
