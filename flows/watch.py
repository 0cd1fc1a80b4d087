"""The driver of the loop: compares what is released, what is registered and what is served, and
starts what is missing. Runs on a schedule; a hint only makes it run sooner, so a lost hint costs
a minute and never a release. Also carries the alarm outbox to Prefect."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from prefect import flow, get_run_logger
from prefect.artifacts import create_table_artifact
from prefect.events import emit_event

from flows.line import settings, store
from flows.missing import missing
from flows.runs import start_once
from registry.effects import heal
from registry.versions import RELEASE


@flow(name="watch", retries=1, retry_delay_seconds=5)
def watch() -> dict[str, Any]:
    """One look at every pairing. Gives what was started or is under way, by its key."""
    logger = get_run_logger()
    found = settings()
    registry = store(found)
    wanted: list[tuple[str, dict[str, Any], str]] = []
    rows = []
    for name, line in found.pairings.items():
        heal(registry, name)  # a promotion that was killed after it was decided
        releases = registry.releases(name)
        newest = max(releases, key=lambda release: release.version, default=None)
        pairs = [] if newest is None else registry.pairs(name, having={RELEASE: newest.digest})
        champion, now = registry.champion(name), time.time()
        for action, parameters, key, why in missing(name, line, releases, pairs, champion, now=now):
            wanted.append((action, parameters, key))
            rows.append({"pairing": name, "action": action, "why": why, "key": key})
    under_way = {}
    for action, parameters, key in wanted:
        run = start_once(f"{action}/{action}", parameters, key)
        state = "nothing more to start" if run is None else str(run.state_name)
        under_way[key] = state
        logger.info("%s: %s", key, state)
    if rows:
        create_table_artifact(rows, key="missing", description="What the last look found missing.")
    delivered = deliver_alarms(found.home)
    return {"under_way": under_way, "alarms": delivered}


def deliver_alarms(home: Any) -> int:
    """Carry the outbox to Prefect: an event for people and triggers, and a run of `respond`.

    The run is what counts, and its key is the alarm's id: an event that is lost is only not seen.
    An alarm is delivered once its run has ended; gives how many were.
    """
    from dataclasses import asdict

    from monitoring.outbox import Outbox

    outbox = Outbox(home / "monitoring" / "outbox")
    delivered = 0
    for alarm in outbox.pending():
        stored: Mapping[str, Any] = asdict(alarm)
        emit_event(
            event=f"paceline.alarm.{alarm.cause}",
            resource={"prefect.resource.id": f"paceline.pair.{alarm.pair}"},
            payload=dict(stored),
            id=uuid5(NAMESPACE_URL, f"paceline:{alarm.id}"),
        )
        if start_once("respond/respond", {"alarm": dict(stored)}, f"respond:{alarm.id}") is None:
            outbox.delivered(alarm.id)
            delivered += 1
    return delivered
