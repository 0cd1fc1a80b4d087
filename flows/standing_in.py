"""What serves a release until its own draft is made. Plain values; knows nothing of Prefect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from configuration.settings import Pairing, Settings
from flows import keeping, making
from flows.adapters import bound
from flows.line import store

LEAST_GAIN = 1.03  # of n-gram's tokens a target forward: what finding its proposals may cost


def begin(
    settings: Settings, line: Pairing, pairing: str, release: str, work: Path
) -> dict[str, Any]:
    """The old draft as a retrain would keep it; "draft" is None, with the reason, where it cannot
    be tried. Raises ValueError for a release that is unknown or whose folder changed."""
    from registry.compatibility import compare

    plan = {**making.begin(settings, pairing, release), "choice": "keep"}
    parent = making.last_with_weights(store(settings).pairs(pairing), plan["champion"])
    if line.draft != "head" or parent is None:
        return {**plan, "why": "there is no old draft to be tried"}
    old = making.fetched(settings, parent, work / "parent")
    fits = compare(Path(plan["target"]), old)
    if not fits.ok:
        return {**plan, "why": f"the old draft does not fit: {'; '.join(fits.reasons)}"}
    why = f"the draft of v{parent.version} serves it until its own is made"
    return {
        **plan,
        **{"parent": parent.pair_id, "parent_draft": str(old), "draft": str(old), "why": why},
    }


def better(wanted: Literal["ngram", "none"], rows: Sequence[Mapping[str, Any]]) -> str:
    """`wanted`, or "none" where a trial's rows show that n-gram saves too few target forwards."""
    by_arm = {row["arm"]: row for row in rows}
    plain, ngram = (by_arm[arm]["forwards_per_request"] for arm in ("none", "ngram"))
    if wanted == "none" or plain is None or ngram is None or plain < LEAST_GAIN * ngram:
        return "none"
    return wanted


def promote(
    settings: Settings, pairing: str, plan: Mapping[str, Any], version: int
) -> dict[str, Any]:
    """The old draft that passed on the new release, marked as what it is and promoted."""
    from registry.standing_in import mark

    registry = store(settings)
    made = registry.pair(pairing, version)
    assert made is not None  # it was registered a moment ago; nothing deletes pairs
    mark(registry, made, str(plan["why"]))
    return keeping.settle(settings, pairing, plan, version, "PASS")


def stand_in(settings: Settings, pairing: str, release: str, kind: str, why: str) -> dict[str, Any]:
    """A pair of the release without weights, made champion. RuntimeError where another champion
    came in between: looked at again, the release may need none.

    Raises ValueError for a release that is unknown or whose folder changed, or an adapter's that
    does not fit it.
    """
    from registry.fingerprint import fingerprint
    from registry.promotion import Outcome
    from registry.standing_in import go_live

    plan = making.begin(settings, pairing, release)
    target = Path(plan["target"])
    adapters, places = bound(settings, pairing, plan)
    served, told = {"adapters": adapters, "adapter_uris": places}, fingerprint(target)
    moved = go_live(store(settings), pairing, target, told, kind, why=why, **served)
    if moved.outcome is Outcome.OVERTAKEN:
        raise RuntimeError(moved.statement)
    champion = None if moved.champion is None else moved.champion.version
    return {"version": champion, "promoted": moved.ok, "statement": moved.statement}
