"""`paceline bench registry`: what a look at a pairing takes, however many versions it has."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from cli.output import Json, emit, table


def registry(
    versions: Annotated[
        list[int], typer.Option(min=1, help="Versions of the pairing; may be repeated.")
    ] = [100, 10_000],  # noqa: B006  typer reads it and gives a new one to each call
    turns: Annotated[int, typer.Option(min=1, help="Looks of each kind.")] = 9,
    as_json: Json = False,
) -> None:
    """Fill databases of MLflow's with versions by SQL, and time the registry's looks at them.

    In a temporary folder, on SQLite, without a server between. Medians, in milliseconds.
    """
    from registry.crowding import looks

    with TemporaryDirectory(prefix="paceline-bench-") as folder:
        found = [
            look for count in versions for look in looks(Path(folder), versions=count, turns=turns)
        ]
    rows = [["versions", "look", "ms"]]
    rows += [[f"{look.versions:,}", look.what, f"{look.seconds * 1000:.1f}"] for look in found]
    emit({"looks": [asdict(look) for look in found]}, table(rows))
