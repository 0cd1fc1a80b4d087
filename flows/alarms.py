"""Carries alarms to the flow that answers them.

All that wait of one pair and cause are one matter and get one answer, whether they are two or a
thousand. They are delivered once that answer is done, or a person has cancelled it; one that was
given up keeps them. Who is told of them is the business of `flows/delivering.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any

from prefect import get_run_logger

from flows.runs import last_run, start_once, under_way

if TYPE_CHECKING:
    from configuration.settings import Settings
    from speculation.records import Alarm

MOST_IDS = 2000  # of alarms that one answer takes along; those beyond are the next one's


def deliver_alarms(found: Settings) -> int:
    """See that each matter is answered; how many alarms are done with."""
    from monitoring.outbox import Outbox

    outbox = Outbox(found.home / "monitoring" / "outbox")
    pending = outbox.pending()
    if not pending:
        return 0
    busy = {_matter(run.parameters["alarm"]) for run in under_way("respond")}
    delivered = 0
    for alarms in matters(pending):
        first = asdict(alarms[0])
        key = f"respond:{first['id']}"
        ids = [alarm.id for alarm in alarms[:MOST_IDS]]
        if _matter(first) in busy:
            continue
        parameters = {"alarm": first, "ids": ids, "count": len(alarms)}
        _, word, why = start_once("respond", parameters, key)
        if word == "given up":
            get_run_logger().error("%s: nobody answers it any more: %s", first["id"], why)
        if word in ("done", "cancelled"):
            run = last_run(key)
            answered = [] if run is None else run.parameters.get("ids", [])
            for one in {first["id"], *answered}:
                outbox.delivered(one)
                delivered += 1
    return delivered


def matters(pending: Sequence[Alarm]) -> list[list[Alarm]]:
    """The alarms by pair and cause, the one that was noticed first at the head of each: what comes
    later comes behind it, whenever it may have begun."""

    def age(alarm: Alarm) -> tuple[str, str, float, str]:
        return alarm.pair, alarm.cause, alarm.raised or alarm.since, alarm.id

    ordered = sorted(pending, key=age)
    return [list(group) for _, group in groupby(ordered, key=lambda one: (one.pair, one.cause))]


def _matter(alarm: Any) -> tuple[str, str]:
    return str(alarm["pair"]), str(alarm["cause"])
