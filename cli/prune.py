"""The command `prune`: what of a pairing's pairs nobody can need any more."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated

import typer

from cli.home import (
    DEFAULT_HOME,
    HomeFolder,
    PairingName,
    Registry,
    running,
    servers,
    settings_of_existing,
)
from cli.output import Json, emit, table
from cli.state import served


def prune(
    pairing: PairingName,
    keep: Annotated[int, typer.Option(min=1, help="The newest pairs that stay.")] = 10,
    days: Annotated[
        float, typer.Option(min=0.0, help="Pairs stay that are no older than this.")
    ] = 30.0,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete what goes; left out, it is only shown.")
    ] = False,
    registry: Registry = None,
    home: HomeFolder = DEFAULT_HOME,
    as_json: Json = False,
) -> None:
    """Show which pairs could be deleted, and why each of the others stays; delete with --delete.

    What has an alias, is served, can be rolled back to, or is young stays. Of what goes, the
    version and the draft's files are deleted; its run stays, with the report and the verdict.
    `mlflow gc` then frees the room.
    """
    settings = settings_of_existing(home, registry)
    if settings.pairings:
        settings.pairing(pairing)
    there = running(home)
    now_served = served(there.get("admin") or there.get("server"), settings) or {}
    with servers(settings) as answering:
        from registry import journal
        from registry.effects import heal
        from registry.retention import fates, forget
        from registry.store import Store

        store = Store(answering.registry)
        heal(store, pairing)
        with store.writing(pairing):  # nothing is promoted here between the look and the deed
            found = fates(
                store.describe(pairing, limit=None),
                journal.read(store, pairing),
                now=time.time(),
                keep_newest=keep,
                keep_days=days,
                served=[str(now_served.get("pair"))],
            )
            going = [fate for fate in found if fate.goes]
            gone = [
                fate.version for fate in going if delete and forget(store, pairing, fate.version)
            ]
            if gone:
                store.describe_pairing(pairing)
    rows = [["  pair", "size", "", "why"]]
    for fate in found:
        word = "deleted" if fate.version in gone else "goes" if fate.goes else "stays"
        rows.append([f"  {fate.version}", fate.size, word, fate.why])
    closing = f"{pairing}: {len(gone)} of {len(found)} pairs deleted"
    if not delete:
        closing = f"{pairing}: {len(going)} of {len(found)} pairs would go; --delete deletes them"
    record = {"pairing": pairing, "deleted": gone, "pairs": [asdict(fate) for fate in found]}
    emit(record, [*table(rows), closing])
