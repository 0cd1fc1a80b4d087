"""What became of the runs that one piece of work had, and whether another is due: pure functions.

A run that failed is a try, and there are so many. One that was killed with its worker is none, and
neither is an outage, in which the work itself was never tried: MLflow or Prefect away, a full disk.
After those it waits, longer each time, for as long as it takes. What the caller has to change is
final at once. Whatever is repaired, a new start of the worker or another configuration, tries anew:
a run counts only under what it was started under.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

Word = Literal["due", "waits", "alive", "done", "cancelled", "given up"]
Kind = Literal["done", "cancelled", "killed", "outage", "refused", "failed"]
Run = Mapping[str, Any]  # name, type (Prefect's, "" before any), message, at (seconds), under

KILLED = "The worker was killed while this ran."
INTERRUPTED = "Runner is shutting down."  # what Prefect's runner says when it is ended with SIGTERM
TRIES = 3  # runs that failed by themselves
FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 60.0, 1800.0

_TYPE = re.compile(r"encountered an exception:\s*(?:[\w.]*\.)?(\w+)")
# Away, or without an answer; the names of what is raised where MLflow, Prefect or a server of ours
# is asked. Other faults of a network or a disk have a number.
OUTAGES = frozenset(
    {
        *("StoreError", "SourceAwayError", "EndpointError"),
        *("ConnectionError", "ConnectionRefusedError"),
        *("ConnectionResetError", "BrokenPipeError", "ConnectError", "ConnectTimeout"),
        *("ReadError", "ReadTimeout", "WriteError", "WriteTimeout", "PoolTimeout"),
        *("RemoteProtocolError", "PrefectHTTPStatusError"),
    }
)
DISK = ("[Errno 28]", "[Errno 122]", "[Errno 5]")  # full, over the quota, broken
AWAY = ("Request to http", "Request failed while attempting to contact the server")
_ANSWERED = re.compile(r"the registry at \S+ refused: ")  # so it is there
REFUSALS = frozenset(
    {
        *("ValueError", "ConfigurationError", "PolicyError", "FolderError", "ManifestError"),
        *("IncompatibleError", "ModelFolderError", "TokenizerError"),
    }
)


def standing(runs: Sequence[Run], *, now: float, under: str | None) -> tuple[Word, int, str]:
    """How the work stands that had these runs, the first one first: the word, the number of the
    attempt that it is about, and why. Not under anything, whoever asks only looks on."""
    if not runs:
        return "due", 1, ""
    last, number = runs[-1], len(runs)
    under = str(last["under"]) if under is None else under
    kind = kind_of(last)
    if kind is None:
        return "alive", number, f"the run {last['name']} is under way"
    why = f"the run {last['name']} is {str(last['type']).capitalize()}: {last['message']}"
    if kind == "done" or kind == "cancelled":
        return kind, number, why
    if _tries(runs, under) >= TRIES:
        return "given up", number, why
    seconds = now - float(last["at"])
    if 0 <= seconds < _wait(runs, under):  # where the clock was put back, it waits no longer
        return "waits", number, why
    return "due", number + 1, why


def kind_of(run: Run) -> Kind | None:
    """How a run ended; None while it has not."""
    kind, message = str(run["type"]), str(run["message"] or "")
    if kind not in FINAL:
        return None
    if kind == "COMPLETED":
        return "done"
    if message in (KILLED, INTERRUPTED):
        return "killed"
    if kind == "CANCELLED":
        return "cancelled"
    found = _TYPE.search(message)
    named = found[1] if found else ""
    if named == "StoreError" and _ANSWERED.search(message):
        return "failed"
    if named in OUTAGES or message.startswith(AWAY) or any(told in message for told in DISK):
        return "outage"
    return "refused" if named in REFUSALS else "failed"


def _tries(runs: Sequence[Run], under: str) -> int:
    counted = [kind_of(run) for run in runs if run["under"] == under]
    return TRIES if "refused" in counted else counted.count("failed")


def _wait(runs: Sequence[Run], under: str) -> float:
    """Seconds to wait after the last run: none, unless it and those before it were outages."""
    outages = 0
    for run in reversed(runs):
        if run["under"] != under or kind_of(run) != "outage":
            break
        outages += 1
    if not outages:
        return 0.0
    return float(min(FIRST_WAIT_SECONDS * 2.0 ** min(outages - 1, 30), LONGEST_WAIT_SECONDS))
