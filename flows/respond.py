"""An alarm has been raised: do what its cause asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefect import flow, get_run_logger
from prefect.artifacts import create_markdown_artifact

from flows.line import settings, store
from flows.runs import start_once

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


@flow(name="respond", retries=2, retry_delay_seconds=5)
def respond(alarm: Mapping[str, Any]) -> dict[str, Any]:
    """Act on one alarm; `alarm` is an `Alarm` as JSON. Gives what was done."""
    action = ACTIONS.get(str(alarm["cause"]), NOTE)
    found = settings()
    done = "noted: a person may look at it"
    for pairing in found.pairings:
        if not any(pair.pair_id == alarm["pair"] for pair in store(found).pairs(pairing)):
            continue
        if action == RETRAIN:
            key = f"retrain:{pairing}:{alarm['release']}:{alarm['id']}"
            parameters = {"pairing": pairing, "release": alarm["release"], "cause": alarm["id"]}
            run = start_once("retrain/retrain", parameters, key)
            done = f"retrain of {pairing}: {'nothing to start' if run is None else run.name}"
        elif action == ROLL_BACK:
            done = _roll_back(pairing)
    get_run_logger().warning("%s: %s", alarm["statement"], done)
    create_markdown_artifact(
        f"**{alarm['cause']}** of pair `{alarm['pair']}`: {alarm['statement']}\n\n{done}",
        key="response",
    )
    return {"action": action, "done": done}


def _roll_back(pairing: str) -> str:
    from registry.promotion import rollback

    return rollback(store(settings()), pairing).statement
