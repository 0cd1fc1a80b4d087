"""Which pair is champion: promotion and rollback. Moves aliases; never moves a release by itself.

The commit point is one entry of the pairing's journal (see `journal` for why two hosts cannot both
win); what follows from it, the aliases, tags and pages, is written after it by whoever comes first:
the one who promotes or, where that one was killed, the next who promotes, rolls back or looks
(`effects.heal`). Before the entry nothing has changed; after it, the promotion happens.

What is not guaranteed: MLflow cannot make the move of an alias depend on the journal. A process
that sleeps between its last look at the journal and that move, while others promote, puts an older
champion back for as long as it takes it to look again, which is the next thing it does; killed in
that moment, it leaves an alias that looks moved by hand, which `paceline status` tells. And
whoever moves the alias without the journal, on MLflow's page, say, is ordered by nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from registry import journal
from registry.door import insisting
from registry.effects import end_last, pair_or_none, tidy, unfinished
from registry.errors import ManifestError, NotFoundError, StoreError
from registry.journal import Entry
from registry.pinning import pin_after, reason_against
from registry.store import Store
from registry.versions import CHAMPION, PREVIOUS, RELEASE, PairVersion
from speculation.records import WITHOUT_WEIGHTS


class Outcome(StrEnum):
    PROMOTED = "promoted"
    ALREADY = "already"  # it was champion before
    OVERTAKEN = "overtaken"  # another champion than the one expected
    REFUSED = "refused"  # not judged good, or nothing to go back to


@dataclass(frozen=True, slots=True)
class Promotion:
    """What became of a promotion or a rollback. A "no" changed nothing."""

    outcome: Outcome
    statement: str  # one sentence, for people
    champion: PairVersion | None  # now
    before: PairVersion | None

    @property
    def ok(self) -> bool:
        """Whether the pair asked for is champion now."""
        return self.outcome in (Outcome.PROMOTED, Outcome.ALREADY)


def now() -> datetime:
    return datetime.now(UTC)


def promote(
    store: Store,
    pairing: str,
    version: int,
    *,
    expect: int | None,
    force: str = "",
    by_hand: bool = False,
    clock: Callable[[], datetime] = now,
) -> Promotion:
    """Make `version` the champion, if the champion still is `expect` (None: there is none).

    `force` is the reason for promoting a pair whose verdict is not PASS, that was rolled back, or
    that takes users back to an earlier release; it is kept with the pair until that is rolled back.
    What goes back a release pins the pairing to it (see `pinning`); only what is asked for
    `by_hand` leaves a pinned release. Asked again, or by two at once, it is done once.
    `NotFoundError` when there is no such version, `StoreError` when MLflow is away or the read-back
    shows a writer that does not keep the journal.
    """
    with store.writing(pairing):
        last = end_last(store, pairing)
        found = store.alias(pairing, CHAMPION)
        before = pair_or_none(store, pairing, found)
        wanted = store.pair(pairing, version)
        if wanted is None:
            raise NotFoundError(f"{pairing} has no version {version}")
        unfit = _reason_against(wanted, wanted.forced)  # what it is champion in spite of, by hand
        if found == version and unfit and not force.strip():
            return Promotion(Outcome.REFUSED, f"{unfit}; its alias was moved by hand", None, before)
        if found == version and not unfit:
            if last is not None and last.version != version:
                was = pair_or_none(store, pairing, last.version)
                pin = _pin_after(store, wanted, was)
                entry = Entry("adopt", version, version, last.number, _stamp(clock), pin=pin)
                return _commit(store, wanted, before, entry)
            champion = tidy(store, wanted, _stamp(clock))
            return Promotion(Outcome.ALREADY, f"v{version} is champion already", champion, before)
        if found not in (expect, version):
            return _overtaken(version, expect, found, before)
        reason = (
            _reason_against(wanted, force)
            or _reason_against_release(store, wanted, before, force)
            or reason_against(store.pinned(pairing), wanted, by_hand=by_hand)
            or _reason_against_files(store, wanted)
        )
        if reason:
            return Promotion(Outcome.REFUSED, reason, before, before)
        after = 0 if last is None else last.number
        pin = _pin_after(store, wanted, before)
        entry = Entry("promote", version, found, after, _stamp(clock), force=force.strip(), pin=pin)
        return _commit(store, wanted, before, entry)


def rollback(
    store: Store,
    pairing: str,
    *,
    to: int | None = None,
    leave: int | None = None,
    reason: str = "rolled back by hand",
    clock: Callable[[], datetime] = now,
) -> Promotion:
    """Go back to an earlier pair of the release that is serving now.

    Takes `to`, or else the best there is: what `previous` names, the pair promoted last before, a
    pair that passed, a draft without weights; of those, one whose stored pair.json still binds it
    to that release. The champion left behind is marked with `reason` and is not promoted again
    without force. Whoever may ask twice says which champion is to be left, `leave`: where it was
    left already, nothing more is done. So it is where a killed rollback for the same reason is
    found and ended.
    """
    reason = reason.strip() or "no reason was given"  # MLflow's tag is the mark: never empty
    with store.writing(pairing):
        began = unfinished(store, pairing)
        last = end_last(store, pairing)
        before = store.champion(pairing)
        ended = began is not None and (began.action, began.reason) == ("rollback", reason)
        if before is not None and ended:
            told = f"v{before.version} is champion: a rollback that was interrupted is done"
            return Promotion(Outcome.PROMOTED, told, before, before)
        if before is not None and leave not in (None, before.version):
            told = f"v{leave} is champion no longer, v{before.version} is: nothing to go back from"
            return Promotion(Outcome.ALREADY, told, before, before)
        if before is None:
            return Promotion(
                Outcome.REFUSED, f"{pairing} has no champion to go back from", None, None
            )
        same = [
            pair
            for pair in store.pairs(pairing, having={RELEASE: before.release})
            if pair.version != before.version
        ]
        serving = f"release {before.release[:12]}, which is serving"
        if to is not None:
            same = [pair for pair in same if pair.version == to]
            no = f"v{to} is no other pair of {serving}"
        else:
            no = f"no other pair of {serving}, may serve it"
        passed_over = []
        while same:
            chosen = same[0] if to is not None else choose_earlier(same)
            if chosen is None:
                break
            unfit = _reason_against_return(chosen) or _reason_against_files(store, chosen)
            if not unfit:
                after = 0 if last is None else last.number
                at = _stamp(clock)
                # A server follows nothing without a PASS, or left once, that has no reason why.
                force = f"fallen back to: {reason}" if chosen.unfit else ""
                back = Entry(
                    "rollback", chosen.version, before.version, after, at, reason, force=force
                )
                return _commit(store, chosen, before, back)
            passed_over.append(unfit)
            same.remove(chosen)
        no = "; ".join(passed_over if to is not None and passed_over else [no, *passed_over])
        told = (
            f"{no}: promote one, or go back to the n-gram draft with `paceline rollback --to ngram`"
        )
        return Promotion(Outcome.REFUSED, told, before, before)


def choose_earlier(pairs: list[PairVersion]) -> PairVersion | None:
    """The best of the pairs of one release to go back to, None where none may serve.

    Pairs that were rolled back are out, and so are those neither passed nor ever promoted, unless
    they have no weights: falling back to plain decoding is always allowed.
    """

    def rank(pair: PairVersion) -> tuple[bool, str, bool, bool, int]:
        return (
            PREVIOUS in pair.aliases,
            pair.promoted,
            pair.passed,
            pair.draft_kind == "ngram",
            pair.version,
        )

    able = [
        pair
        for pair in pairs
        if not pair.rolled_back
        and (pair.passed or pair.promoted or pair.draft_kind in WITHOUT_WEIGHTS)
    ]
    return max(able, key=rank, default=None)


def _reason_against(pair: PairVersion, force: str) -> str:
    if force.strip():
        return ""
    if pair.rolled_back:
        return (
            f"v{pair.version} was rolled back ({pair.rolled_back}): force it with a reason, or "
            "train another"
        )
    if not pair.passed:
        return (
            f"v{pair.version} has the verdict {pair.verdict or 'none'}, wanted PASS: force it with "
            "a reason, or measure it again"
        )
    return ""


def _reason_against_release(
    store: Store, wanted: PairVersion, before: PairVersion | None, force: str
) -> str:
    """A decision about a draft takes nobody back to an earlier target: that a person says apart."""
    if before is None or before.release == wanted.release or force.strip():
        return ""
    numbers = _numbers(store, wanted.pairing)
    served, asked = numbers.get(before.release, 0), numbers.get(wanted.release, 0)
    if asked >= served:
        return ""
    return (
        f"v{wanted.version} is of release {asked}, and release {served} is serving: to take users "
        "back to an earlier target is no decision about a draft; force it with the reason, or go "
        f"back to a pair of release {served} with a rollback"
    )


def _numbers(store: Store, pairing: str) -> dict[str, int]:
    return {release.digest: release.version for release in store.releases(pairing)}


def _pin_after(store: Store, wanted: PairVersion, before: PairVersion | None) -> str:
    """What its promotion makes of the pairing's pin."""
    pinned = store.pinned(wanted.pairing)
    served = None if before is None else before.release
    now = None if pinned is None else pinned.digest
    if served == wanted.release and now in (None, served):
        return ""  # no change of release, and no query for their numbers
    return pin_after(wanted.release, served, now, _numbers(store, wanted.pairing))


def _reason_against_return(pair: PairVersion) -> str:
    """Why nobody may go back to the pair: what `choose_earlier` passes over by itself."""
    if pair.draft_kind in WITHOUT_WEIGHTS:
        return ""
    if pair.rolled_back:
        return f"v{pair.version} was rolled back ({pair.rolled_back})"
    if pair.passed or pair.promoted:
        return ""
    return f"v{pair.version} has the verdict {pair.verdict or 'none'} and never served"


def _reason_against_files(store: Store, pair: PairVersion) -> str:
    """Why the pair that is stored is not the one that its tags tell of; empty where it is."""
    name = f"v{pair.version}"
    try:
        manifest = insisting(lambda: store.manifest(pair))
    except NotFoundError:
        return f"{name}: its files were deleted from MLflow"
    except ManifestError as error:
        return f"{name}: {error}"
    bound = manifest.release.digest
    if bound != pair.release:
        return f"{name}: its pair.json binds it to release {bound[:12]}, its tag says otherwise"
    if pair.pair_id != manifest.pair_id:
        return f"{name}: its pair.json is of another draft than its tag says"
    if all(release.digest != bound for release in store.releases(pair.pairing)):
        return f"{name}: release {bound[:12]} is none of {pair.pairing}'s: it is another pairing's"
    return ""


def _commit(
    store: Store, wanted: PairVersion, before: PairVersion | None, entry: Entry
) -> Promotion:
    """Write the entry; where it counts, what follows from it."""
    pairing, number = wanted.pairing, f"v{wanted.version}"
    insisting(lambda: journal.append(store, pairing, entry))  # twice there, it counts once
    counting = journal.read(store, pairing)
    own = next((one for one in counting if one.token == entry.token), None)
    end_last(store, pairing)  # also another's: so that what is said of the champion is so
    if own is None:  # another host's followed the same entry, and has a lower number
        now, winner = store.alias(pairing, CHAMPION), counting[-1]
        champion = pair_or_none(store, pairing, now)
        return _overtaken(wanted.version, entry.instead_of, now, champion, f", by {winner.by}")
    champion = pair_or_none(store, pairing, store.alias(pairing, CHAMPION))
    if champion is None or champion.version != wanted.version:
        newest = journal.read(store, pairing)[-1]
        if newest.number == own.number and newest.deleted:
            stays = "there is no champion" if champion is None else f"v{champion.version} still is"
            told = f"{number} was deleted while it was to become champion: {stays}"
            return Promotion(Outcome.REFUSED, told, champion, champion)
        if newest.number == own.number:
            raise StoreError(
                f"{pairing}: {number} was made champion and is not: the alias was moved by hand, "
                "or by a program that does not keep the journal, at the same time. Look at the "
                "pairing's page and promote again"
            )
        told = f"{number} was made champion, and v{newest.version} followed it at once"
        return Promotion(Outcome.PROMOTED, told, champion, before)
    if entry.action == "adopt":
        told = f"{number} is champion already; its alias was moved by hand, which is noted now"
        return Promotion(Outcome.ALREADY, told, champion, before)
    went = "the first champion" if before is None else f"champion, v{before.version} is previous"
    if before is not None and before.version == wanted.version:
        went = "champion with the reason that was missing"
    return Promotion(Outcome.PROMOTED, f"{number} is now {went}", champion, before)


def _overtaken(
    version: int, expect: int | None, found: int | None, now: PairVersion | None, by: str = ""
) -> Promotion:
    return Promotion(
        Outcome.OVERTAKEN,
        f"v{version} was judged against {_named(expect)}, but the champion is "
        f"{_named(found)}{by}: measure it again, against that one, or say that it may take its "
        f"place unmeasured, with `--expect {found or 0}`",
        now,
        now,
    )


def _stamp(clock: Callable[[], datetime]) -> str:
    return clock().isoformat("T", "seconds")


def _named(version: int | None) -> str:
    return "none" if version is None else f"v{version}"
