"""What a server was started with, as it tells: samples of one that was started otherwise are those
of something else, and two reports differ by it. Knows the names and their types; asks nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from evaluation.typed import TypedError, read

TOLD: dict[str, Any] = {  # of the conditions, and of `/admin/pair`
    "max_slots": int,
    "max_context": int,
    "adapters": Mapping[str, str],
    "dtype": str,
    "device": str,
    "threads": int,
}


def started_with(told: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the conditions that the server tells. What is left out or of another type is
    unknown: an endpoint need not be ours."""
    found = {}
    for name, kind in TOLD.items():
        with suppress(TypedError):
            found[name] = read(kind, told.get(name), name)
    return found
