"""The command `pin`: users stay on the release that is serving, whatever is released."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.exits import Exit
from cli.home import (
    DEFAULT_HOME,
    HomeFolder,
    PairingName,
    Registry,
    servers,
    settings_of_existing,
    worded,
)
from cli.output import Json, emit


def pin(
    pairing: PairingName,
    lift: Annotated[
        bool, typer.Option("--lift", help="End it: the newest release may go live again.")
    ] = False,
    reason: Annotated[
        str,
        typer.Option(
            metavar="REASON", help="Kept with the release that is pinned.", callback=worded
        ),
    ] = "by hand",
    registry: Registry = None,
    home: HomeFolder = DEFAULT_HOME,
    as_json: Json = False,
) -> None:
    """Keep users on the release that is serving, whatever is released.

    Going back to an earlier release with `promote --force` does so by itself. Until the pin is
    lifted, or a person promotes a pair of another release, new releases get their drafts and do
    not go live. Exit code 1 where there is nothing to pin, or no pin to lift.
    """
    settings = settings_of_existing(home, registry)
    with servers(settings) as there:
        from registry import pinning
        from registry.store import Store

        store = Store(there.registry)
        store.check_ours(pairing)
        with store.writing(pairing):
            if lift:
                found = pinning.unpin(store, pairing)
                told = f"{pairing} is pinned to no release" + (" any more" if found else "")
            else:
                champion = store.champion(pairing)
                found, told = (
                    None,
                    f"{pairing} has no champion: no release serves that could be pinned",
                )
                if champion is not None:
                    found = pinning.pin(store, pairing, champion.release, reason)
                    told = f"{pairing} is pinned to release {found.version}, whatever is released"
            if found:
                store.describe_pairing(pairing)
    version = found.version if found else None
    emit({"pairing": pairing, "pinned": not lift and bool(found), "release": version}, told)
    if not found:
        raise typer.Exit(Exit.NO)
