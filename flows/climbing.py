"""Back up the ladder: a pair that was left because of an alarm is promoted again, once, after a
quiet time. What may go up is decided in `flows/ladder.py`; the work is the flow `promote`'s."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flows.ladder import climb
from flows.ledger import entries, note
from flows.runs import stands
from registry.versions import RELEASE

if TYPE_CHECKING:
    from configuration.settings import Settings
    from registry.store import Store

CLIMBED = "climbed"  # the ledger's word


def climbs(registry: Store, found: Settings, pairing: str, *, now: float) -> list[dict[str, Any]]:
    """The promotion that goes back up now, if one does. Raises RegistryError."""
    champion = registry.champion(pairing)
    if champion is None or not champion.stands_in:
        return []
    pairs = registry.pairs(pairing, having={RELEASE: champion.release})
    past = [entry for entry in entries(found.home) if entry["pairing"] == pairing]
    pair = climb(champion, pairs, past, now=now)
    if pair is None:
        return []
    key = f"climb:{pairing}:{pair.version}"
    word, _ = stands(key)
    if word in ("done", "given up", "cancelled"):
        note(found.home, key, CLIMBED, pairing, version=pair.version)
        return []
    why = f"back up: all is quiet since v{pair.version} was left ({pair.rolled_back})"
    parameters = {"pairing": pairing, "version": pair.version, "expect": champion.version}
    return [
        {
            **{"pairing": pairing, "flow": "promote", "key": key, "why": why, "inputs": ""},
            "parameters": {**parameters, "by_hand": False, "force": why},
        }
    ]
