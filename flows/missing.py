"""What a pairing lacks, from what is released, registered and served: a pure function.

Level-triggered: it looks at how things are and never at what happened, so it may be asked at any
time and any number of times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from registry.versions import PREVIOUS

if TYPE_CHECKING:
    from registry.store import PairVersion, ReleaseVersion

Missing = tuple[str, dict[str, Any], str, str]  # flow, parameters, key, why


def missing(
    pairing: str,
    releases: Sequence[ReleaseVersion],
    pairs: Sequence[PairVersion],
    champion: PairVersion | None,
) -> list[Missing]:
    """What to start. Only the newest release counts: an older one was superseded."""
    if not releases:
        return []
    newest = max(releases, key=lambda release: release.version)
    digest = newest.digest
    if champion is not None and champion.release == digest:
        return []
    made = [pair for pair in pairs if pair.release == digest]
    passed = [pair.version for pair in made if pair.passed and not pair.rolled_back]
    if made and not passed:  # not good enough: a person or an alarm says what comes next
        return []
    parameters = {"pairing": pairing, "release": digest}
    why = f"release {newest.version} has no pair"
    if passed:  # the retrain knows which champion it was judged against; done, it is not run again
        why = f"pair {max(passed)} passed for release {newest.version} and is not the champion"
    return [("retrain", parameters, f"retrain:{pairing}:{digest}", why)]


def concluded(
    digest: str, pairs: Sequence[PairVersion], champion: PairVersion | None
) -> dict[str, Any] | None:
    """How the release with that digest ended, as the registry has it; None while it has not.

    A retrain that was killed between its last write to the registry and its own last marker is
    never started again, since nothing is missing: this says what it would have said.
    """
    if champion is not None and champion.release == digest:
        what = f"v{champion.version} is champion"
        return _outcome(champion, promoted=True, statement=what)
    made = [pair for pair in pairs if pair.release == digest]
    served = [pair for pair in made if pair.promoted or PREVIOUS in pair.aliases]
    if served:
        what = f"v{served[0].version} was champion"
        return _outcome(served[0], promoted=True, statement=what)
    if not made or any(pair.passed and not pair.rolled_back for pair in made):
        return None
    newest = max(made, key=lambda pair: pair.version)
    what = f"pair {newest.version} is not promoted: the gate says {newest.verdict}"
    return _outcome(newest, promoted=False, statement=what)


def _outcome(pair: PairVersion, *, promoted: bool, statement: str) -> dict[str, Any]:
    return {
        **{"version": pair.version, "phase": pair.verdict},
        **{"promoted": promoted, "statement": statement},
    }
