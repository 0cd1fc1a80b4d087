"""Which retrains wait although they are due: what the limits allow of a day is used up, or so many
candidates failed that a person has to look. The decision is `flows/restraint.py`'s."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flows.ledger import entries
from flows.restraint import may_compute, needs_person
from flows.telling import tell

if TYPE_CHECKING:
    from configuration.settings import Settings


def held_back(found: Settings, wanted: Sequence[dict[str, Any]], *, now: float) -> dict[str, str]:
    """Why each of these pieces of work may not begin now, by its key; people are told once."""
    retrains = [one for one in wanted if one["flow"] == "retrain"]
    noted = entries(found.home) if retrains else []
    held = {}
    for one in retrains:
        pairing, release = one["pairing"], one["parameters"]["release"]
        past = [entry for entry in noted if entry["pairing"] == pairing]
        limits = found.pairing(pairing).limits
        asks = needs_person(past, limits, release=release)
        why = asks or may_compute(past, limits, now=now)
        if not why:
            continue
        held[one["key"]] = why
        key = f"held:{one['key']}:{'asks' if asks else int(now // 86_400)}"
        title = f"{pairing}: a retrain waits" + (" for a person" if asks else "")
        tell(found.home, key, title, f"{one['why']}; {why}.", pairing=pairing)
    return held
