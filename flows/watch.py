"""The driver of the loop: compares what is released, what is registered and what is served, and
starts what is missing. Runs on a schedule; a hint only makes it run sooner, so a lost hint costs
a minute and never a release. Also carries the alarm outbox to Prefect."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, uuid5

from prefect import flow, get_run_logger
from prefect.artifacts import create_table_artifact
from prefect.events import emit_event

from flows.line import settings, store
from flows.missing import Missing, missing
from flows.runs import start_once
from registry.effects import heal
from registry.errors import RegistryError
from registry.versions import RELEASE

if TYPE_CHECKING:
    from configuration.settings import Pairing
    from registry.store import Store


@flow(name="watch", retries=1, retry_delay_seconds=5)
def watch() -> dict[str, Any]:
    """One look at every pairing. Gives what was started or is under way, by its key."""
    logger = get_run_logger()
    found = settings()
    registry = store(found)
    wanted: list[tuple[str, dict[str, Any], str]] = []
    rows = []
    faults: dict[str, RegistryError] = {}
    for name, line in found.pairings.items():
        try:
            lacks = lacking(registry, name, line)
        except RegistryError as error:  # of one pairing: the others go on, and alarms are delivered
            faults[name] = error
            logger.error("%s: %s", name, error)
            rows.append({"pairing": name, "action": "none", "why": str(error), "key": ""})
            continue
        for action, parameters, key, why in lacks:
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
    if faults and len(faults) == len(found.pairings):  # the registry itself, so it is tried again
        raise next(iter(faults.values()))
    told = {name: str(error) for name, error in faults.items()}
    return {"under_way": under_way, "alarms": delivered, "faults": told}


def lacking(registry: Store, name: str, line: Pairing) -> list[Missing]:
    """What one pairing lacks now. Raises RegistryError."""
    heal(registry, name)  # a promotion that was killed after it was decided
    releases = registry.releases(name)
    newest = max(releases, key=lambda release: release.version, default=None)
    pairs = [] if newest is None else registry.pairs(name, having={RELEASE: newest.digest})
    champion = registry.champion(name)
    stays = registry.pinned(name) if releases else None
    pinned = "" if stays is None else stays.digest
    return missing(name, line, releases, pairs, champion, now=time.time(), pinned=pinned)


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
