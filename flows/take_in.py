"""A release that a source shows, made ours: fetched whole, identified, registered once. Wiring:
what is retried, what is shown, and the markers that make a finished step stay finished."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger
from prefect.artifacts import create_markdown_artifact

from configuration.sources import Source
from flows import taking
from flows.bounds import end_with_worker
from flows.hurrying import hint
from flows.ledger import note
from flows.line import configured, store
from flows.progress import reporting
from flows.retrain import step
from flows.sources import memory, origin, told_back
from flows.steps import alone, once
from flows.telling import tell
from registry.arrivals import Arrival
from registry.errors import FolderError, IncompatibleError, NotFoundError


@flow(name="take_in", flow_run_name="take_in-{pairing}-{arrival[place]}")
def take_in(pairing: str, source: dict[str, Any], arrival: dict[str, Any]) -> dict[str, Any]:
    """Take in what the source shows. Gives what became of it; asked again, it gives what it gave.

    What can be no release is refused once, with its reason, until it changes.
    """
    end_with_worker()
    settings, _ = configured(pairing)
    place, shown = Source(**source), Arrival(**arrival)
    known = memory(settings, pairing)
    work = settings.home / "work" / pairing / "arrivals" / shown.id
    with alone(work.parent / "lock"):  # numbered in their order
        told = known.outcome(shown)
        if told is not None:
            return {"outcome": told}
        try:
            fetched = fetch(pairing, place, shown, work)
            found = identify(pairing, place, shown, fetched["folder"], work)
            settled = settle(pairing, shown, found, work)
            made = register(pairing, place, shown, {**found, **settled}, work)
        except (FolderError, IncompatibleError, NotFoundError) as error:
            taking.clean(settings, pairing, shown)
            shutil.rmtree(work, ignore_errors=True)
            if taking.changed(settings, place, shown, store(settings)):
                return _told(pairing, {"outcome": f"changed: {error}"})  # it arrives anew
            known.note(origin(place), shown, f"refused: {error}")
            note(settings.home, f"refused:{shown.id}", "refused", pairing, why=str(error))
            title = f"{pairing}: what {origin(place)} shows is no release"
            why = f"{error}. It is looked at again once it changes"
            tell(settings.home, f"refused:{shown.id}", title, why, pairing=pairing)
            return _told(pairing, {"outcome": f"refused: {error}"})
        except ValueError as error:  # for a person to change; a start of the worker asks again
            title = f"{pairing}: a release cannot be taken in"
            tell(settings.home, f"stuck:{shown.id}:{error}", title, str(error), pairing=pairing)
            raise
        outcome = f"release {made['version']} ({made['release'][:12]})"
        if made["back"] and shown.pointed:
            get_run_logger().warning(told_back(settings, pairing, origin(place), shown, outcome))
        known.note(origin(place), shown, outcome)
        shutil.rmtree(work, ignore_errors=True)
    if made["new"]:
        hint(settings.home, f"taken-in-{shown.id}")
    return _told(pairing, {**made, "outcome": outcome})


@step(hours=12)
def fetch(pairing: str, source: Source, arrival: Arrival, work: Path) -> dict[str, Any]:
    """The arrival as a folder that nobody writes to any more."""
    settings, _ = configured(pairing)
    return once(
        work,
        "fetch",
        {"arrival": arrival.id},
        lambda: taking.fetch(settings, pairing, source, arrival, store(settings)),
    )


@step(hours=12)
def identify(
    pairing: str, source: Source, arrival: Arrival, folder: str, work: Path
) -> dict[str, Any]:
    """What it is, by all of its bytes; an adapter is merged into its base."""
    settings, line = configured(pairing)
    report = reporting(work, "identify")
    return once(
        work,
        "identify",
        {"arrival": arrival.id, "folder": folder, "base": source.base or line.target},
        lambda: taking.identify(settings, pairing, source, arrival, Path(folder), report),
    )


@step(hours=1)
def settle(pairing: str, arrival: Arrival, found: dict[str, Any], work: Path) -> dict[str, Any]:
    """What was fetched, under the name of what it is."""
    settings, _ = configured(pairing)
    return once(
        work,
        "settle",
        {"arrival": arrival.id, "found": found},
        lambda: taking.settle(settings, pairing, arrival, found),
    )


@step(hours=1)
def register(
    pairing: str, source: Source, arrival: Arrival, found: dict[str, Any], work: Path
) -> dict[str, Any]:
    """The release known to the registry."""
    settings, _ = configured(pairing)
    return once(
        work,
        "register",
        {"arrival": arrival.id, "found": found},
        lambda: taking.register(settings, pairing, source, arrival, found),
    )


def _told(pairing: str, outcome: dict[str, Any]) -> dict[str, Any]:
    get_run_logger().info(outcome["outcome"])
    create_markdown_artifact(f"**{pairing}**: {outcome['outcome']}.", key="arrival")
    return outcome
