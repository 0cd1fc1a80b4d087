"""Which champion a promotion may replace: the one that its pair was judged against.

What a gate said holds against one incumbent. So each judged pair carries the number of the champion
at that time, and whoever promotes it later without saying more means that one.
"""

from __future__ import annotations

from registry import journal
from registry.effects import pair_or_none
from registry.store import Store
from registry.versions import CHAMPION, PairVersion


def expected(store: Store, pairing: str, version: int, *, force: str = "") -> int | None:
    """The champion that the pair `version` may replace; None: there has to be none.

    The one that is now, whichever it is, for a pair that was judged against none on record (n-gram,
    an imported one), for one that is forced, since no verdict counts then, and for the pair that
    the journal has as champion: its alias was moved by hand, and is put back.
    """
    now = store.alias(pairing, CHAMPION)
    pair = pair_or_none(store, pairing, version)
    if pair is None or pair.judged_against is None or force.strip():
        return now
    entries = journal.read(store, pairing)
    if entries and entries[-1].version == version:
        return now
    return against(pair_or_none(store, pairing, now), pair.release, pair.judged_against or None)


def against(champion: PairVersion | None, release: str, judged: int | None) -> int | None:
    """`judged`, or the champion that came since, where it serves that release only until a draft
    of the release's own is made."""
    if champion is not None and champion.stands_in and champion.release == release:
        return champion.version
    return judged
