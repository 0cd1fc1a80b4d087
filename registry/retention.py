"""What of a pairing may be deleted, and why the rest stays. Pure, but for `forget`.

A version may be needed by an alias, by a server that follows one or will after a restart, by a
rollback, by a retrain that starts from its draft, or by whoever asks why something was decided. So
a pair goes only when none of these can want it any more, and what goes is its version and its
files: its run stays, with the report, the verdict and the figures.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from registry import journal
from registry.door import speaking
from registry.journal import Entry
from registry.store import Store
from registry.versions import PAIR_ID, SIZE, PairingState, PairVersion
from speculation.records import WITHOUT_WEIGHTS

DAY_SECONDS = 86_400.0
KEEP_NEWEST, KEEP_DAYS = 10, 30.0  # by default


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of one version."""

    version: int
    pair_id: str
    goes: bool
    why: str  # it stays, or goes
    size: str  # as its tag tells it, e.g. "12.3 MB"


def fates(
    state: PairingState,  # all pairs
    entries: Sequence[Entry],  # of the journal
    *,
    now: float,  # seconds since the epoch
    keep_newest: int = KEEP_NEWEST,
    keep_days: float = KEEP_DAYS,
    served: Collection[str] = (),  # pair_ids that servers say they serve
) -> list[Fate]:
    """Every pair's fate, newest first."""
    champion = state.named("champion")
    releases = sorted(state.releases, key=lambda release: -release.version)
    live = {releases[0].digest: "the newest release"} if releases else {}
    if champion is not None:
        live[champion.release] = "the release that is serving"
    pending = under_way(entries)
    start = _next_start(state.pairs)
    newest = {pair.version for pair in state.pairs[:keep_newest]}

    def reason_to_stay(pair: PairVersion) -> str:
        age_days = (now - pair.registered) / DAY_SECONDS
        if pair.aliases:
            return f"it carries the alias {', '.join(pair.aliases)}"
        if pair.version in pending:
            return "a promotion is under way"
        if pair.pair_id in served:
            return "a server says that it serves it"
        if pair.release in live and may_serve(pair):
            return f"a rollback may need it: it is a pair of {live[pair.release]}"
        if pair.pair_id == start:
            return "the next retrain may start from it: no draft with weights served after it"
        if champion is not None and pair.pair_id == champion.parent:
            return f"the champion v{champion.version} started from it"
        if pair.version in newest:
            return f"it is one of the newest {keep_newest}"
        if age_days < keep_days:
            return f"it is {age_days:.0f} days old, and {keep_days:g} are kept"
        return ""

    def found(pair: PairVersion) -> Fate:
        why = reason_to_stay(pair)
        going = f"{pair.verdict.lower() or 'unjudged'}, of a release that serves no longer"
        if pair.release in live:
            going = f"{pair.verdict.lower() or 'unjudged'}, and never was champion"
        if pair.rolled_back:
            going = "it was rolled back"
        return Fate(pair.version, pair.pair_id, not why, why or going, pair.tags.get(SIZE, ""))

    return [found(pair) for pair in state.pairs]


def may_serve(pair: PairVersion) -> bool:
    """Whether a rollback might choose it, by itself or by its number."""
    return pair.passed or bool(pair.promoted) or pair.draft_kind in WITHOUT_WEIGHTS


def under_way(entries: Sequence[Entry]) -> set[int]:
    """The versions that a promotion, which is decided and not yet written, names."""
    named = {entry.version for entry in entries if not entry.finished}
    last = entries[-1] if entries else None
    if last is not None and not last.finished and last.instead_of is not None:
        named.add(last.instead_of)
    return named


def _next_start(pairs: Sequence[PairVersion]) -> str:
    """pair_id of the last draft with weights that served and was not taken out of service: what
    falls back to n-gram, or goes live with it, leaves it as the one to train on from."""
    served = [
        pair
        for pair in pairs
        if pair.draft_kind not in WITHOUT_WEIGHTS and pair.promoted and not pair.rolled_back
    ]
    last = max(served, key=lambda pair: pair.promoted, default=None)
    return "" if last is None else last.pair_id


def forget(store: Store, pairing: str, version: int) -> bool:
    """Delete a version and the files of its pair, unless it was promoted meanwhile, on another host
    say; whether it did. Other versions of the same files keep them. MLflow frees the room with
    `mlflow gc`.

    The caller holds `store.writing`. Killed in between, the files lie there without a version, and
    are no pair of anyone's.
    """
    with speaking(store.url, f"deleting {pairing} v{version}"):
        # In this order: a promotion is an entry before it is an alias, so one of the two shows it.
        if version in under_way(journal.read(store, pairing)):
            return False
        pair = store.pair(pairing, version)
        if pair is None or pair.aliases:
            return False
        store.client.delete_model_version(pairing, str(version))
        others = store.pairs(pairing, having={PAIR_ID: pair.pair_id})
        if pair.model_id and all(other.model_id != pair.model_id for other in others):
            store.client.delete_logged_model(pair.model_id)
        return True
