"""Has Prefect mark a run of this home Crashed whose process is gone without a word.

    PREFECT_API_URL=… PACELINE_HOME=… python zombies.py

For work pools: a worker of ours does that itself when it starts. Said again, it is brought up to
date.
Runs have to send heartbeats each 30 s (PREFECT_FLOWS_HEARTBEAT_FREQUENCY); one that waits for a
retry sends none, so the time is longer than the longest such wait.
"""

from __future__ import annotations

from datetime import timedelta

from prefect import get_client
from prefect.client.schemas.objects import StateType
from prefect.events import EventTrigger, Posture, ResourceSpecification
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore

from flows.attempts import KILLED
from flows.whose import tag

SILENT_SECONDS = 150.0
LAST_WORDS = ("Completed", "Failed", "Cancelled", "Crashed", "Suspended", "Paused")
SIGNS = ("heartbeat", "AwaitingRetry")


def zombies() -> AutomationCore:
    """The automation: a heartbeat, and then nothing."""
    events = "prefect.flow-run."
    return AutomationCore(
        name=f"{tag()} runs that are gone",
        trigger=EventTrigger(
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=SILENT_SECONDS),
            after={events + sign for sign in SIGNS},
            expect={events + word for word in (*SIGNS, *LAST_WORDS)},
            for_each={"prefect.resource.id"},
            match=ResourceSpecification({"prefect.resource.id": ["prefect.flow-run.*"]}),
            match_related=ResourceSpecification(
                {"prefect.resource.role": ["tag"], "prefect.resource.id": [f"prefect.tag.{tag()}"]}
            ),
        ),
        actions=[
            ChangeFlowRunState(name="Crashed", state=StateType.CRASHED, message=KILLED, force=False)
        ],
    )


def main() -> None:
    wanted = zombies()
    with get_client(sync_client=True) as client:
        for known in client.read_automations_by_name(wanted.name):
            client.delete_automation(known.id)
        client.create_automation(wanted)
    print(f"{wanted.name}: after {SILENT_SECONDS:g} s of silence")


if __name__ == "__main__":
    main()
