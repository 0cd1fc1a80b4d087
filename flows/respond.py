"""An alarm has been raised: do what its cause asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prefect import flow, get_run_logger
from prefect.artifacts import create_markdown_artifact

from flows.episodes import want_retrain
from flows.line import settings, store
from registry.versions import PAIR_ID

if TYPE_CHECKING:
    from registry.store import PairVersion

RETRAIN = "retrain"  # the pair no longer fits what it is asked: make another
ROLL_BACK = "roll back"  # the draft itself is broken: the last pair of this release served well
NOTE = "note"  # nothing is wrong with the draft; a person may want to know
ACTIONS = {
    "release_mismatch": RETRAIN,
    "drift": RETRAIN,
    "dead_draft": ROLL_BACK,
    "no_gain": NOTE,
    "mix_shift": NOTE,
    "engine_change": NOTE,
}


@flow(name="respond", retries=2, retry_delay_seconds=5, timeout_seconds=300.0)
def respond(alarm: Mapping[str, Any], ids: Sequence[str] = (), count: int = 1) -> dict[str, Any]:
    """Act on the alarms of one pair and cause; `alarm` is the first of them, an `Alarm` as JSON,
    `ids` are those that this answers. Gives what was done."""
    action = ACTIONS.get(str(alarm["cause"]), NOTE)
    found = settings()
    done = "noted: a person may look at it"
    for pairing in found.pairings:
        versions = store(found).pairs(pairing, having={PAIR_ID: str(alarm["pair"])})
        if not versions:
            continue
        if action == RETRAIN:
            release, cause = str(alarm["release"]), str(alarm["id"])
            want_retrain(found, pairing, release, cause, str(alarm["statement"]))
            done = f"a retrain of {pairing} is wanted, and begins in its turn"
        elif action == ROLL_BACK:
            done = _roll_back(pairing, versions, f"alarm {alarm['id']}: {alarm['cause']}")
    get_run_logger().warning("%s: %s", alarm["statement"], done)
    create_markdown_artifact(
        f"**{alarm['cause']}** of pair `{alarm['pair']}`: {alarm['statement']}\n\n{done}\n\n"
        f"Alarms that this answers: {count}.",
        key="response",
    )
    return {"action": action, "done": done}


def _roll_back(pairing: str, versions: Sequence[PairVersion], reason: str) -> str:
    """Leave the champion, where it still is the alarm's pair: asked twice, it is left once. Where
    there is no earlier pair to go back to, for the n-gram draft, which needs no making."""
    from registry.promotion import Outcome, rollback
    from registry.standing_in import fall_back

    registry = store(settings())
    now = registry.champion(pairing)
    leave = next((one for one in versions if now and one.version == now.version), versions[0])
    back = rollback(registry, pairing, leave=leave.version, reason=reason)
    if back.outcome is Outcome.REFUSED and now is not None:
        back = fall_back(registry, pairing, "ngram", reason=reason, leave=leave.version)
    return back.statement
