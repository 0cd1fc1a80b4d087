"""What a pairing lacks, from what is released, registered and served: pure functions.

Level-triggered: they look at how things are and never at what happened, so they may be asked at any
time and any number of times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from registry.leaving import LEFT
from registry.versions import PREVIOUS
from speculation.records import Phase

if TYPE_CHECKING:
    from configuration.settings import Pairing
    from registry.store import PairVersion, ReleaseVersion

MEASUREMENTS = 3  # of a release's pair that are cut short, each tried three times: then a person
Missing = tuple[str, dict[str, Any], str, str]  # flow, parameters, key, why


def missing(
    pairing: str,
    line: Pairing,
    releases: Sequence[ReleaseVersion],
    pairs: Sequence[PairVersion],
    champion: PairVersion | None,
    *,
    now: float,  # seconds since the epoch
    pinned: str = "",  # digest of the release that users are to stay on; empty: the newest
    ended: Mapping[str, str] | None = None,  # by key, why nobody works on that any more
    adapters: str = "",  # the `adapter_set` that the release is to be served with
) -> list[Missing]:
    """What to start. Only the newest release counts: an older one was superseded. Where users are
    to stay on another one it does not go live, and its draft is made for when they no longer are.
    A pair that passed and that its own retrain did not promote, since another champion or a pin
    was in the way then, is promoted when that is so no longer. A pair that was judged with other
    adapters is none of the release's own any more; where it serves, it serves on meanwhile.
    """
    if not releases:
        return []
    newest = max(releases, key=lambda release: release.version)
    parameters = {"pairing": pairing, "release": newest.digest}
    ended = ended or {}
    pairs = [pair for pair in pairs if pair.adapters == adapters]
    own = _own(pairs, newest.digest)
    making = retrain_key(pairing, newest.digest, pairs, adapters)
    last = _last_step(pairing, line, own, champion) if making in ended else None
    over = ended.get(making if last is None else last[2], "")
    found: list[Missing] = []
    stays = pinned not in ("", newest.digest)
    if not stays and (why := waits_no_more(line, newest, pairs, champion, now=now, over=over)):
        found.append(("go_live", {**parameters, "why": why}, live_key(pairing, newest.digest), why))
        if line.on_release == "at_once":  # its trial comes before the making of a draft, which
            return found  # takes the machine for long
    serves = has_its_draft(newest, champion, adapters)
    if last is not None and not stays and not serves:
        found.append(last)
    elif why := lacks_a_draft(newest, pairs, champion, adapters):
        found.append(("retrain", parameters, making, why))
    return found


def _last_step(
    pairing: str, line: Pairing, own: Sequence[PairVersion], champion: PairVersion | None
) -> Missing | None:
    """What is left to do with a release's pair whose retrain is over: to promote what passed, or to
    ask a person, where that is the policy or where the gate could not tell. None: nothing."""
    passed = [pair for pair in own if may_serve(pair)]
    chosen = max(passed or own, key=lambda pair: pair.version, default=None)
    if chosen is None or LEFT in chosen.tags or measured_again(own):
        return None
    version, expect = chosen.version, None if champion is None else champion.version
    parameters = {"pairing": pairing, "version": version, "expect": expect}
    if passed and line.limits.approval == "automatic":
        why = f"pair {version} passed and is not the champion"
        key = f"promote:{pairing}:{version}:{expect or 0}"
        return "promote", {**parameters, "by_hand": False}, key, why
    if not passed and chosen.verdict != Phase.INCONCLUSIVE:
        return None
    why = f"pair {version} {'passed' if passed else 'is INCONCLUSIVE'}, and a person decides"
    return "approve", {**parameters, "why": why}, f"approve:{pairing}:{version}", why


def may_serve(pair: PairVersion) -> bool:
    """Whether it passed, and neither a rollback nor a person has said no since."""
    return pair.passed and not pair.rolled_back and LEFT not in pair.tags


def retrain_key(pairing: str, digest: str, pairs: Sequence[PairVersion], adapters: str = "") -> str:
    """The name of the work of making a release's own pair for a set of adapters: another one after
    each measurement that was cut short, since a name that was used up starts nothing more."""
    pairs = [pair for pair in pairs if pair.adapters == adapters]
    beside = f":adapters-{adapters[:12]}" if adapters else ""
    cut = sum(1 for pair in _own(pairs, digest) if pair.ended_early)
    return f"retrain:{pairing}:{digest}{beside}" + (f":again-{cut}" if cut else "")


def live_key(pairing: str, digest: str) -> str:
    """The name of the work of having a release served before its own draft is made."""
    return f"go_live:{pairing}:{digest}"


def waits_no_more(
    line: Pairing,
    newest: ReleaseVersion,
    pairs: Sequence[PairVersion],
    champion: PairVersion | None,
    *,
    now: float,
    over: str = "",  # why nobody works on its own draft any more
) -> str:
    """Why the newest release is to go live without a draft of its own; empty while it is not.

    It waits for its draft for `max_wait_hours` at most, not at all where it is to go live at once,
    and no longer where what was made for it is not good enough, or where nobody makes it any more.
    """
    if champion is not None and champion.release == newest.digest:
        return ""
    if line.on_release == "at_once":
        return 'because on_release = "at_once"'
    waited = now - newest.registered
    if waited >= line.max_wait_hours * 3600:
        return f"because it waited {waited / 3600:.1f} hours for its draft (max_wait_hours)"
    own = _own(pairs, newest.digest)
    if own and not any(may_serve(pair) for pair in own) and not measured_again(own):
        last = max(own, key=lambda pair: pair.version)
        return f"because its own draft, v{last.version}, is not promoted ({last.verdict})"
    return f"because nobody makes its draft any more: {over}" if over else ""


def has_its_draft(newest: ReleaseVersion, champion: PairVersion | None, adapters: str = "") -> bool:
    """Whether what serves is the newest release's own pair, judged with these adapters."""
    if champion is None or champion.release != newest.digest or champion.stands_in:
        return False
    return champion.adapters == adapters


def lacks_a_draft(
    newest: ReleaseVersion,
    pairs: Sequence[PairVersion],
    champion: PairVersion | None,
    adapters: str = "",
) -> str:
    """Why a retrain for the newest release is due; empty where it is not."""
    if has_its_draft(newest, champion, adapters):
        return ""
    serving = champion is not None and champion.release == newest.digest
    own = _own(pairs, newest.digest)
    passed = [pair.version for pair in own if may_serve(pair)]
    if own and not passed:  # not good enough: a person or an alarm says what comes next
        return measured_again(own)
    if passed:  # the retrain knows which champion it was judged against; done, it is not run again
        what = f"pair {max(passed)} passed for release {newest.version}"
        return f"{what} and is not the champion"
    if champion is not None and serving and not champion.stands_in:
        return f"v{champion.version} was judged with other adapters than the pairing has now"
    return f"release {newest.version} has no pair{' of its own' if serving else ''}"


def measured_again(own: Sequence[PairVersion]) -> str:
    """Why a release's pair is to be measured again: measuring the last one was cut short, by a
    server that died or a machine that was busy, which says nothing of the draft. Empty where not,
    and where that happened too often."""
    newest = max(own, key=lambda pair: pair.version)
    if not newest.ended_early or sum(1 for pair in own if pair.ended_early) >= MEASUREMENTS:
        return ""
    return f"measuring pair {newest.version} ended early: {newest.ended_early}"


def _own(pairs: Sequence[PairVersion], digest: str) -> list[PairVersion]:
    """The pairs that were made for a release, not what stands in until then."""
    return [pair for pair in pairs if pair.release == digest and not pair.stands_in]


def concluded(
    digest: str, pairs: Sequence[PairVersion], champion: PairVersion | None
) -> dict[str, Any] | None:
    """How the release with that digest ended, as the registry has it; None while it has not.

    A retrain that was killed between its last write to the registry and its own last marker is
    never started again, since nothing is missing: this says what it would have said.
    """
    if champion is not None and champion.release == digest and not champion.stands_in:
        what = f"v{champion.version} is champion"
        return _outcome(champion, promoted=True, statement=what)
    made = _own(pairs, digest)
    served = [pair for pair in made if pair.promoted or PREVIOUS in pair.aliases]
    if served:
        what = f"v{served[0].version} was champion"
        return _outcome(served[0], promoted=True, statement=what)
    if not made or any(may_serve(pair) for pair in made):
        return None
    if measured_again(made):
        return None
    newest = max(made, key=lambda pair: pair.version)
    what = f"pair {newest.version} is not promoted: the gate says {newest.verdict}"
    if newest.ended_early:
        what += f", since measuring ended early: {newest.ended_early}"
    return _outcome(newest, promoted=False, statement=what)


def _outcome(pair: PairVersion, *, promoted: bool, statement: str) -> dict[str, Any]:
    return {
        **{"version": pair.version, "phase": pair.verdict},
        **{"promoted": promoted, "statement": statement},
    }
