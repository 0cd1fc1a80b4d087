"""What the sources of a pairing show: which arrivals are to be taken in, and what waits. Reads no
weights, so it is a part of each look."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from configuration.sources import Source
from flows.ledger import note
from flows.steps import digest, read_json, write_json
from registry.arrivals import Arrival, Arrivals
from registry.errors import RegistryError
from registry.incoming import candidates, signature, unfinished, written

if TYPE_CHECKING:
    from configuration.settings import Pairing, Settings
    from registry.store import Store

ENDED = ("done", "given up", "cancelled")  # words: nobody works on it any more
LONGEST_QUIET_SECONDS = 15.0  # that a look waits for by itself
CLOCK_SECONDS = 0.1  # so that the time is over when it is looked again
Stands = Callable[..., tuple[str, str]]


def origin(source: Source) -> str:
    """Which source this is, for people and for what is remembered of it."""
    follows = {
        "mlflow": "@*" if source.every_version else f"@{source.alias}",
        "hub": f"@{source.revision}",
    }
    return f"{source.kind}:{source.place}{follows.get(source.kind, '')}"


def memory(settings: Settings, pairing: str) -> Arrivals:
    """What is remembered of a pairing's sources."""
    return Arrivals(settings.home / "sources" / f"{pairing}.json")


def shown(
    settings: Settings, source: Source, registry: Store, handled: Collection[str] = ()
) -> list[Arrival]:
    """What a source shows now; of those whose id is `handled` nobody looks whether they are whole.
    Raises RegistryError, and OSError for a disk."""
    return LOOKS[source.kind](settings, source, registry, handled)


def arriving(
    settings: Settings,
    pairing: str,
    line: Pairing,
    registry: Store,
    *,
    stands: Stands,  # how the work of a key stands, and why
    inputs: str = "",
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The work of taking in what has arrived, and rows that tell of what is not taken in yet.

    One at a time, the oldest first: releases are numbered in the order in which they came. What is
    wrong with one source keeps no other from being looked at.
    """
    known = memory(settings, pairing)
    work: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []

    def row(why: str, action: str = "none") -> None:
        rows.append({"pairing": pairing, "action": action, "why": why, "key": "", "now": ""})

    for source in line.sources:
        of = origin(source)
        try:
            found = shown(settings, source, registry, known.handled())
        except (RegistryError, OSError) as error:
            row(f"{of}: {error}")
            continue
        seconds = source.settle_seconds if source.kind in ("folder", "store") else 0.0
        look = known.look(of, found, settle_seconds=seconds)
        if seconds <= LONGEST_QUIET_SECONDS and any(not one.waits for one, _ in look.waiting):
            sleep(seconds + CLOCK_SECONDS)  # shorter than the time until the next look
            try:
                found = shown(settings, source, registry, known.handled())
            except (RegistryError, OSError):
                pass  # the next look says what is wrong
            else:
                look = known.look(of, found, settle_seconds=seconds)
        for arrival, why in look.waiting:
            row(f"{arrival.place}: {why}")
        for arrival, outcome in look.back:
            why = told_back(settings, pairing, of, arrival, outcome)
            known.pointed_at(of, arrival)
            row(why, "ask")
        for arrival in look.due:
            key = f"take_in:{pairing}:{arrival.id}"
            word, why = stands(key, inputs=inputs)
            if word in ENDED:
                row(f"{arrival.place}: {why}")
                continue
            parameters = {"pairing": pairing, "source": asdict(source), "arrival": asdict(arrival)}
            said = {"why": f"{of} shows {arrival.place}", "since": arrival.created}
            task = {"flow": "take_in", "parameters": parameters, "key": key, "inputs": inputs}
            work.append({"pairing": pairing, "rank": "release", **said, **task})
    work.sort(key=lambda one: float(one["since"]))
    return work[:1], rows


def subscribe(settings: Settings, registry: Store) -> str:
    """See, once for each start of the worker, that the registry posts to who listens here; why it
    does not, "" where it does or nobody listens. A look each minute does the same."""
    hooks, secret = settings.hooks, settings.hook_secret
    if not hooks.port or secret is None:
        return ""
    url = hooks.url or f"http://{hooks.host}:{hooks.port}/hooks/registry"
    marker = settings.home / "flows" / "webhook.json"
    worker = os.environ.get("FLOWS_WORKER_STARTED", "")
    done = {"of": digest({"registry": registry.url, "url": url, "worker": worker})}
    if read_json(marker) == done:
        return ""
    from registry.subscribing import ensure_webhook

    try:
        ensure_webhook(registry, url, secret)
    except RegistryError as error:
        return f"no webhook, so releases are seen by looking each minute: {error}"
    write_json(marker, done)
    return ""


def told_back(settings: Settings, pairing: str, of: str, arrival: Arrival, outcome: str) -> str:
    """Note that a source names something that was handled before: going back is for a person."""
    why = (
        f"{of} is back at {arrival.place} ({outcome}). Going back a release is never done by "
        f"itself: `paceline promote VERSION --pairing {pairing} --force REASON` promotes a pair of "
        "that release and pins it"
    )
    from flows.telling import tell  # it knows Prefect, and `paceline doctor` looks without

    key = f"back:{of}:{arrival.id}:{time.time():.0f}"
    note(settings.home, key, "asked", pairing, why=why)
    tell(settings.home, key, f"{pairing}: {of} went back a release", why, pairing=pairing)
    return why


def _models(
    settings: Settings, source: Source, registry: Store, handled: Collection[str]
) -> list[Arrival]:
    from registry.models import every, named

    if source.every_version:
        return every(registry, source.place)
    return named(registry, source.place, alias=source.alias)


def _folders(
    settings: Settings, source: Source, registry: Store, handled: Collection[str]
) -> list[Arrival]:
    place = settings.path(source.place)
    found = candidates(place)
    alone = found == [place.resolve()]
    return [_folder(folder, source.marker, handled, pointed=alone) for folder in found]


def _folder(folder: Path, marker: str, handled: Collection[str], *, pointed: bool) -> Arrival:
    before = signature(folder)
    arrival = Arrival(str(folder), before, written(folder), pointed)
    if arrival.id in handled:  # a tokenizer that is large takes a second to look at
        return arrival
    why = unfinished(folder, marker=marker)
    if not why and signature(folder) != before:
        why = "it is being written to"
    return replace(arrival, waits=why)


def _hub(
    settings: Settings, source: Source, registry: Store, handled: Collection[str]
) -> list[Arrival]:
    from registry.hub import head

    return [head(source.place, source.revision, token=settings.hub_token)]


def _objects(
    settings: Settings, source: Source, registry: Store, handled: Collection[str]
) -> list[Arrival]:
    from registry.objects import listing

    return listing(source.place, marker=source.marker)


LOOKS: Mapping[str, Callable[[Settings, Source, Store, Collection[str]], list[Arrival]]] = {
    "mlflow": _models,
    "folder": _folders,
    "hub": _hub,
    "store": _objects,
}
