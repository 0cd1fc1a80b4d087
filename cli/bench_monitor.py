"""`paceline bench monitor`: what the monitor's detectors see, how soon and how often by mistake."""

from __future__ import annotations

import math
import os
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cli.exits import Exit
from cli.output import Json, emit, progress_bars, table

if TYPE_CHECKING:
    from monitoring.proof import Proof, Tally
    from monitoring.scraping_cost import Cost

MOST_SECONDS = 5.0  # of one core, for a look at MANY replicas
MANY = 1000
FALLS = ("fall 0.05", "fall 0.10", "fall 0.20", "collapse")


def monitor(
    streams: Annotated[int, typer.Option(min=1, help="Simulated streams of each case.")] = 40,
    healthy: Annotated[int, typer.Option(min=500, help="Requests of a healthy stream.")] = 20_000,
    replicas: Annotated[
        int, typer.Option(min=1, help="Replicas of the look that is timed.")
    ] = MANY,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes that share the work; left out, one a CPU, 4 at most."),
    ] = None,
    only: Annotated[
        Literal["all", "detectors", "cost"], typer.Option(help="Half of it alone.")
    ] = "all",
    as_json: Json = False,
) -> None:
    """Prove the detectors on simulated requests, beside ones that others use; time a look.

    Nothing is served. Exit code 1 when a bound is missed: a fall seen too late, more than one false
    alarm in forty streams, a naive detector that does no worse, or a look that takes too long. The
    same options give the same figures on every machine, but for the time of a look.
    """
    from monitoring import proof, scraping_cost, simulation

    found, cost = None, None
    if only != "cost":
        with progress_bars() as progress:
            found = proof.prove(
                streams=streams,
                naive_streams=min(streams, 20),
                cases=simulation.scenarios(healthy=healthy),
                workers=workers or min(4, os.cpu_count() or 1),
                progress=progress,
            )
    if only != "detectors":
        with TemporaryDirectory(prefix="paceline-bench-") as folder:
            cost = scraping_cost.measure(Path(folder), replicas=replicas)
    faults = [] if found is None else found.faults
    if cost is not None and slow(cost):
        faults.append(f"a look takes {cost.cpu_seconds:.1f} s of a core, wanted {MOST_SECONDS:g}")
    lines: list[str] = []
    if found is not None:
        lines += [*detectors(found), *untouched(found)]
    if cost is not None:
        lines += timed(cost)
    lines += ["The bounds are missed:", *(f"  {one}" for one in faults)] if faults else [GOOD]
    emit(record(found, cost, faults), lines)
    raise typer.Exit(Exit.NO if faults else Exit.YES)


GOOD = "Every bound is kept."


def slow(cost: Cost) -> bool:
    """By the time of its core, which a busy machine does not lengthen; in proportion."""
    return cost.cpu_seconds > MOST_SECONDS * max(1.0, cost.replicas / MANY)


def detectors(found: Proof) -> list[str]:
    """A table for each correlation: false alarms, and requests until a fall is seen."""
    from monitoring.proof import OURS

    lines = []
    correlations = dict.fromkeys(each.scenario.correlation for each in found.tallies)
    for correlation in correlations:
        healthy = found.of("healthy", correlation)
        rows = [["detector", "false alarms", *FALLS]]
        for name in (*OURS, *found.naive):
            falls = [found.of(fall, correlation) for fall in FALLS]
            cells = ["-" if one is None else delay(one, name) for one in falls]
            rows.append([name, "-" if healthy is None else false(healthy, name), *cells])
        lines += [
            f"Correlation {correlation:.2f} within a request: healthy streams that alarmed, and "
            "requests from a fall",
            "of alpha-hat to the alarm, median (p90)",
            *table(rows),
            "",
        ]
    return lines


def untouched(found: Proof) -> list[str]:
    """The other cases, of the shipped combination."""
    from monitoring.proof import AT, COMBINATION

    rows = [["case, shipped combination alone", "alarmed", "median (p90)"]]
    for each in found.tallies:
        scenario = each.scenario
        if scenario.correlation == AT and scenario.name not in ("healthy", *FALLS):
            seen = delay(each, COMBINATION) if scenario.fall else ""
            rows.append([scenario.name, false(each, COMBINATION), seen])
    return [*table(rows), ""]


def timed(cost: Cost) -> list[str]:
    return [
        f"One look at {cost.replicas:,} replicas, pages of {cost.page_bytes / 1000:.0f} kB: "
        f"{cost.cpu_seconds:.2f} s of one core, {cost.seconds:.2f} s by the clock (medians)",
        "",
    ]


def false(each: Tally, name: str) -> str:
    """How many streams alarmed, of how many."""
    return f"{each.alarmed(name)} of {len(each.first[name])}"


def delay(each: Tally, name: str) -> str:
    """Median and 90th percentile; > where that many never alarmed."""
    seen = [each.delay(name, share) for share in (0.5, 0.9)]
    middle, late = (f"{one:g}" if math.isfinite(one) else "never" for one in seen)
    return "never" if middle == "never" else f"{middle} ({late})"


def record(found: Proof | None, cost: Cost | None, faults: list[str]) -> dict[str, Any]:
    """All of it for programs; a stream that never alarmed is null."""
    cases = [] if found is None else found.tallies
    return {
        "holds": not faults,
        "faults": faults,
        "cases": [
            {
                "scenario": asdict(each.scenario),
                "first_alarm": {
                    name: [one if math.isfinite(one) else None for one in first]
                    for name, first in each.first.items()
                },
            }
            for each in cases
        ],
        "cost": None if cost is None else asdict(cost),
    }
