"""The command `resume`: a person looked, and the loop may go on by itself."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from cli.exits import Exit
from cli.home import DEFAULT_HOME, HomeFolder, PairingName, settings_of_existing, worded
from cli.output import Json, emit


def resume(
    pairing: PairingName,
    reason: Annotated[
        str,
        typer.Option(metavar="REASON", help="Kept in the home's ledger.", callback=worded),
    ] = "by hand",
    home: HomeFolder = DEFAULT_HOME,
    as_json: Json = False,
) -> None:
    """Let the loop retrain and leave champions again, after it stopped to call a person.

    It stops when too many candidates for a release failed one after the other, and when the
    champion was left too often within a day: what happened until now does not count any more. The
    minutes that retrains took do.
    """
    settings = settings_of_existing(home, None)
    settings.pairing(pairing)  # one that is configured
    from flows.ledger import note

    key = f"resumed:{pairing}:{time.time_ns()}"
    note(settings.home, key, "resumed", pairing, reason=reason)
    told = f"{pairing}: the loop goes on by itself ({reason})"
    emit({"pairing": pairing, "resumed": True, "reason": reason}, told)
    raise typer.Exit(Exit.YES)
