"""The deployments of a home, as its configuration has them: schedules, triggers, tags.

They are created when the worker starts, and what the configuration no longer has goes then. Touches
none that does not carry the home's tag.
"""

from __future__ import annotations

from datetime import timedelta

from prefect import get_client
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterTags
from prefect.deployments.runner import RunnerDeployment
from prefect.events import DeploymentEventTrigger
from prefect.schedules import Cron, Interval, Schedule
from prefect.types.entrypoint import EntrypointType

from configuration.settings import Settings
from flows.catalogue import HEAVY, LIGHT, flow_of
from flows.whose import deployment, tag

HINT = "paceline.hint"  # an event that anybody may send, who knows of something to look at
HINT_SECONDS = 10.0  # one look for all hints about one thing within so long
PAGE = 200


def schedules(settings: Settings, watch_seconds: float) -> dict[str, list[Schedule]]:
    """When each flow runs by the clock: `watch` always, `refresh` for each pairing that has it."""
    found = {"watch": [Interval(timedelta(seconds=watch_seconds))]}
    if "refresh" in LIGHT:
        found["refresh"] = [
            Cron(line.limits.refresh, parameters={"pairing": name}, slug=name.replace("_", "-"))
            for name, line in settings.pairings.items()
            if line.limits.refresh
        ]
    return found


def deployments(settings: Settings, watch_seconds: float) -> list[RunnerDeployment]:
    """One for each flow, found by its module: a file entrypoint would put flows/ itself on the
    path, where a file named like a library would hide it."""
    when = schedules(settings, watch_seconds)
    hinted = DeploymentEventTrigger(
        name=f"{tag()} hint",
        expect={HINT},
        for_each={"prefect.resource.id"},
        threshold=1,
        within=timedelta(seconds=HINT_SECONDS),
    )
    made = []
    for name in (*LIGHT, *HEAVY):
        one = flow_of(name).to_deployment(
            deployment(name),
            schedules=when.get(name, []),
            triggers=[hinted] if name == "watch" else [],
            tags=[tag()],
            entrypoint_type=EntrypointType.MODULE_PATH,
        )
        assert isinstance(one, RunnerDeployment)  # a coroutine only in async code
        made.append(one)
    return made


def remove_gone(wanted: list[RunnerDeployment]) -> list[str]:
    """Delete this home's deployments that are not wanted; their names."""
    kept = {str(one.name) for one in wanted}
    ours = DeploymentFilter(tags=DeploymentFilterTags(all_=[tag()]))
    gone = []
    with get_client(sync_client=True) as client:
        found = client.read_deployments(deployment_filter=ours, limit=PAGE)
        for one in found:
            if one.name not in kept:
                client.delete_deployment(one.id)
                gone.append(one.name)
    return gone
