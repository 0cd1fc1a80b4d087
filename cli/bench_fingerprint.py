"""`paceline bench fingerprint`: how fast a folder is identified, beside plain sha256sum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.models import Target
from cli.output import Json, emit, figure, progress_bars, table

if TYPE_CHECKING:
    from registry.speed import ReadingSpeed

HEAD = ["way", "GB/s", "over sha256sum", "range"]


def fingerprint(
    target: Target,
    turns: Annotated[int, typer.Option(help="Runs of each way.", min=1)] = 5,
    cold: Annotated[
        bool, typer.Option("--cold", help="From the disk: what memory holds is dropped first.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Identify a folder's weights again and again, interleaved with plain sha256sum of its files.

    GB/s are medians, of 10^9 bytes; the ratio is over sha256sum in the same turn, and its range
    over the turns. Reading alone is what the disk, or memory, gives to whoever only reads.
    """
    from registry.speed import measure

    with progress_bars() as progress:
        found = measure(target, turns=turns, cold=cold, progress=progress)
    emit({"cold": cold, "speeds": found}, table([HEAD, *map(_row, found)]))


def _row(speed: ReadingSpeed) -> list[str]:
    return [
        speed.name,
        figure(speed.gigabytes_per_second, 2),
        figure(speed.ratio, 2),
        f"{min(speed.ratios):.2f} to {max(speed.ratios):.2f}",
    ]
