"""Keeps series.jsonl short: a day as it was written, a month in steps of minutes, marks for ever.

Knows entries; knows nothing of who reads them. The file is replaced whole, and whoever appends to
it meanwhile waits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path

from monitoring.series import NAMES, Entry, Gauge, Mark, Point, Throughput, locked, read_series
from monitoring.whole import write_whole

WHOLE_SECONDS = 86_400.0  # kept as it was written
KEPT_SECONDS = 30 * 86_400.0
STEP_SECONDS = 300.0  # of what is older than a day
SMALL_BYTES = 4 * 2**20  # a file that is not worth it


def thin(path: Path, *, now: float) -> int:
    """Thin it where it is long; how many entries are gone. Raises OSError.

    Nothing is older than it is by the newest entry, whatever the clock says.
    """
    if not path.exists() or path.stat().st_size < SMALL_BYTES:
        return 0
    with locked(path):
        before = read_series(path)
        newest = max((one.at for one in before), default=now)
        after = thinned(before, now=min(now, newest))
        if len(after) < len(before):
            lines = [json.dumps({"kind": NAMES[type(one)], **asdict(one)}) for one in after]
            write_whole(path, "".join(line + "\n" for line in lines))
            path.chmod(0o644)  # as it was; a temporary file is its owner's alone
    return len(before) - len(after)


def thinned(entries: Iterable[Entry], *, now: float) -> list[Entry]:
    """What stays, by time. A step keeps the last of a pair's points, and the sum of what its
    counters did."""
    kept: list[Entry] = []
    steps: dict[tuple[type, str, str, int], Point | Throughput | Gauge] = {}
    for entry in entries:
        age = now - entry.at
        if isinstance(entry, Mark) or age <= WHOLE_SECONDS:
            kept.append(entry)
        elif age <= KEPT_SECONDS:
            step = (type(entry), entry.pair, entry.drafter, int(entry.at // STEP_SECONDS))
            before = steps.get(step)
            if isinstance(before, Throughput) and isinstance(entry, Throughput):
                entry = _added(before, entry)
            steps[step] = entry
    return sorted([*kept, *steps.values()], key=lambda one: one.at)


def _added(first: Throughput, then: Throughput) -> Throughput:
    """Both as one; acceptance is the later's, since no ratio is averaged."""
    seconds = first.seconds + then.seconds
    emitted = first.emitted_per_second * first.seconds + then.emitted_per_second * then.seconds
    return replace(
        then,
        seconds=seconds,
        requests=first.requests + then.requests,
        errors=first.errors + then.errors,
        emitted_per_second=emitted / seconds if seconds else 0.0,
    )
