"""Which pair is champion: promotion and rollback. Moves aliases; never moves a release by itself.

MLflow has no compare-and-set, so one is built: under the pairing's lock (see `locks` for whom that
orders) the champion is read, compared with the one the candidate was judged against, and moved by
one write, `champion`, after `previous` was set; then it is read back. Killed before that write,
nothing has changed for a server; after it, the same call finds itself done and tidies up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from registry.door import speaking
from registry.errors import NotFoundError, StoreError
from registry.store import Store
from registry.versions import (
    CANDIDATE,
    CHAMPION,
    FORCED,
    PREVIOUS,
    PROMOTED,
    ROLLED_BACK,
    WITHOUT_WEIGHTS,
    PairVersion,
)


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
    clock: Callable[[], datetime] = now,
) -> Promotion:
    """Make `version` the champion, if the champion still is `expect` (None: there is none).

    `force` is the reason for promoting a pair whose verdict is not PASS, or that was rolled back;
    it is kept with the pair. `NotFoundError` when there is no such version, `StoreError` when
    MLflow is away or the read-back shows another writer.
    """
    with store.writing(pairing):
        before = store.champion(pairing)
        wanted = store.pair(pairing, version)
        if wanted is None:
            raise NotFoundError(f"{pairing} has no version {version}")
        if before is not None and before.version == version:
            champion = _tidy(store, wanted, clock)
            return Promotion(Outcome.ALREADY, f"v{version} is champion already", champion, before)
        found = None if before is None else before.version
        if found != expect:
            return Promotion(
                Outcome.OVERTAKEN,
                f"v{version} was judged against {_named(expect)}, but the champion is "
                f"{_named(found)}: measure it again, against that one",
                before,
                before,
            )
        if reason := _reason_against(wanted, force):
            return Promotion(Outcome.REFUSED, reason, before, before)
        return _move(store, wanted, before, force=force, clock=clock)


def rollback(
    store: Store,
    pairing: str,
    *,
    to: int | None = None,
    reason: str = "rolled back by hand",
    clock: Callable[[], datetime] = now,
) -> Promotion:
    """Go back to an earlier pair of the release that is serving now.

    Takes `to`, or else the best there is: what `previous` names, the pair promoted last before, a
    pair that passed, a draft without weights. The champion left behind is marked with `reason` and
    is not promoted again without force.
    """
    with store.writing(pairing):
        before = store.champion(pairing)
        if before is None:
            return Promotion(
                Outcome.REFUSED, f"{pairing} has no champion to go back from", None, None
            )
        same = [
            pair
            for pair in store.pairs(pairing)
            if pair.release == before.release and pair.version != before.version
        ]
        if to is not None:
            chosen = next((pair for pair in same if pair.version == to), None)
            no = f"v{to} is no other pair of release {before.release[:12]}, which is serving"
        else:
            chosen = choose_earlier(same)
            no = f"no other pair of release {before.release[:12]}, which is serving, may serve it"
        if chosen is None:
            return Promotion(
                Outcome.REFUSED, f"{no}: promote one, or ngram, instead", before, before
            )
        with speaking(store.url, f"rolling back {pairing}"):
            number = str(before.version)
            store.client.set_model_version_tag(pairing, number, ROLLED_BACK, reason)
        return _move(store, chosen, before, force="", clock=clock)


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


def _move(
    store: Store,
    wanted: PairVersion,
    before: PairVersion | None,
    *,
    force: str,
    clock: Callable[[], datetime],
) -> Promotion:
    pairing, number = wanted.pairing, str(wanted.version)
    client = store.client
    with speaking(store.url, f"promoting {pairing} v{number}"):
        if force.strip():
            client.set_model_version_tag(pairing, number, FORCED, force.strip())
        if before is not None:
            client.set_registered_model_alias(pairing, PREVIOUS, str(before.version))
        client.set_registered_model_alias(pairing, CHAMPION, number)
    champion = store.champion(pairing)
    if champion is None or champion.version != wanted.version:
        raise StoreError(
            f"{pairing}: v{number} was made champion and is not: another host moved the alias at "
            "the same time. Look at the pairing's page and promote again"
        )
    champion = _tidy(store, champion, clock, anew=True)
    went = "the first champion" if before is None else f"champion, v{before.version} is previous"
    return Promotion(Outcome.PROMOTED, f"v{number} is now {went}", champion, before)


def _tidy(
    store: Store, champion: PairVersion, clock: Callable[[], datetime], *, anew: bool = False
) -> PairVersion:
    """What follows from a promotion, and may be missing when one was killed. Gives the champion."""
    pairing, number = champion.pairing, str(champion.version)
    with speaking(store.url, f"recording the promotion of {pairing} v{number}"):
        if CANDIDATE in champion.aliases:
            store.client.delete_registered_model_alias(pairing, CANDIDATE)
        if anew or not champion.promoted:
            stamp = clock().isoformat("T", "seconds")
            store.client.set_model_version_tag(pairing, number, PROMOTED, stamp)
    pairs = store.describe_pairing(pairing)
    return next((pair for pair in pairs if pair.version == champion.version), champion)


def _named(version: int | None) -> str:
    return "none" if version is None else f"v{version}"
