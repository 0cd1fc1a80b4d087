"""What an alarm asks for, and when to go back up: pure functions.

The rungs are the last good pair, n-gram, none. Down is quick, for users pay for a draft that is
bad; up is slow, once for each pair, and never for one that was dead. What the loop may not do by
itself any more, a person is told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from registry.leaving import LEFT
from speculation.records import WITHOUT_WEIGHTS

if TYPE_CHECKING:
    from registry.store import PairVersion

Step = dict[str, Any]  # kind and why; more where the kind needs it
QUIET_SECONDS = 24 * 3600.0  # without an alarm of a pairing, before it goes back up
BETWEEN_RELOADS = 3600.0  # a draft that is dead again so soon was not cured by it
LEARN_AGAIN = ("drift", "external")
DEAD = ("dead_draft",)
LEAST_DRAFT_LEN = 1


def answer(cause: str, facts: Mapping[str, Any]) -> list[Step]:
    """The steps, in their order; one of kind "note" where nothing is to be done.

    `facts`: serving (whether the alarm's pair is champion), drafter and draft_len (of the alarm's
    pair), earlier (a pair of this release to go back to, as words, or empty), servers (whether any
    is known), reloaded (seconds since the last reload of this pair, or None), lowered (whether K
    was lowered for it), coming (whether its release's own pair is being made), known (whether the
    release that is served is registered), loses (whether drafting is slower than none now), and the
    sentences why not, or empty: may_retrain, may_turn.
    """
    if cause == "release_mismatch":
        return _mismatch(facts)
    if not facts["serving"]:
        return [_note("the pair that it is of is champion no longer")]
    if cause in DEAD:
        return _dead(facts)
    if cause in LEARN_AGAIN:
        return _learn_again(facts)
    if cause == "drafter_fault":
        healed = _reload(facts, "its drafter failed, and the servers decode plainly until then")
        return healed or [_ask("its drafter fails again after it was loaded anew")]
    if cause == "no_gain":
        return _no_gain(facts)
    return [_note("nothing is wrong with the draft: a person may look at it")]


def _mismatch(facts: Mapping[str, Any]) -> list[Step]:
    why = "another release is served than the pair was validated for"
    steps = [{"kind": "steer", "drafter": "ngram", "why": why}] if facts["servers"] else []
    if facts["coming"]:
        return [*steps, _note("a draft for the release that is served is being made already")]
    if not facts["known"]:
        said = f"{why}, and it is not registered: announce it with `paceline release`"
        return [*steps, _ask(said)]
    return [*steps, _retrain(facts, why)]


def _dead(facts: Mapping[str, Any]) -> list[Step]:
    if facts["drafter"] in WITHOUT_WEIGHTS:
        return [_note("it has no weights that could be broken: nothing is accepted by chance")]
    again = facts["reloaded"] is not None
    healed = _reload(facts, "its files may be whole and what is in memory not")
    if healed:
        return healed
    if facts["may_turn"]:
        return [_ask(facts["may_turn"])]
    why = "it is dead again after it was loaded anew" if again else "its draft is dead"
    kind = "roll_back" if facts["earlier"] else "fall_back"
    return [{"kind": kind, "to": facts["earlier"] or "ngram", "why": why}]


def _learn_again(facts: Mapping[str, Any]) -> list[Step]:
    steps = []
    if facts["loses"] and facts["servers"]:
        why = "drafting is slower than none until another draft is made"
        steps = [{"kind": "steer", "drafter": "ngram", "why": why}]
    return [*steps, _retrain(facts, "requests changed, and the draft did not")]


def _no_gain(facts: Mapping[str, Any]) -> list[Step]:
    length = facts["draft_len"]
    if facts["servers"] and not facts["lowered"] and length and length > LEAST_DRAFT_LEN:
        why = "drafting costs more than it saves"
        return [{"kind": "steer", "draft_len": max(LEAST_DRAFT_LEN, length // 2), "why": why}]
    if facts["may_turn"]:
        return [_ask(facts["may_turn"])]
    return [{"kind": "fall_back", "to": "none", "why": "drafting costs more than it saves"}]


def _reload(facts: Mapping[str, Any], why: str) -> list[Step]:
    reloaded = facts["reloaded"]
    if not facts["servers"] or (reloaded is not None and 0 <= reloaded < BETWEEN_RELOADS):
        return []
    return [{"kind": "reload", "why": why}]


def _retrain(facts: Mapping[str, Any], why: str) -> Step:
    if facts["may_retrain"]:
        return _ask(facts["may_retrain"])
    return {"kind": "retrain", "why": why}


def _note(why: str) -> Step:
    return {"kind": "note", "why": why}


def _ask(why: str) -> Step:
    return {"kind": "ask", "why": why}


def climb(
    champion: PairVersion | None,
    pairs: Sequence[PairVersion],  # of the champion's release
    past: Sequence[Mapping[str, Any]],  # the pairing's entries in the ledger
    *,
    now: float,
) -> PairVersion | None:
    """The pair to go back up to, None where things stay: it passed, was left because of an alarm of
    another cause than a dead draft, was not gone back up to before, and all has been quiet."""
    if champion is None or not champion.stands_in or champion.draft_kind not in WITHOUT_WEIGHTS:
        return None
    answered = [entry for entry in past if entry["what"] == "answered"]
    if any(0 <= now - entry["at"] < QUIET_SECONDS for entry in answered):
        return None
    tried = {entry.get("version") for entry in past if entry["what"] == "climbed"}
    for pair in sorted(pairs, key=lambda one: one.version, reverse=True):
        for_an_alarm = pair.rolled_back.startswith("alarm ")
        dead = any(f": {cause}" in pair.rolled_back for cause in DEAD)
        able = pair.passed and for_an_alarm and not dead and LEFT not in pair.tags
        if able and pair.release == champion.release and pair.version not in tried:
            return pair
    return None
