"""Servers that do not serve the champion: hurried after a while, told of after a longer one.

A server follows the registry by itself, so a look or two behind is nothing. How many looks each has
been behind is kept on the disk, since a look is a process of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import httpx

from flows.served import hurry, served
from flows.steps import read_json, write_json

if TYPE_CHECKING:
    import logging

    from configuration.settings import Pairing, Settings
    from registry.store import PairVersion

HURRIED_AFTER, TOLD_AFTER = 3, 10  # looks behind, one after the other


def counted(
    rows: Sequence[Mapping[str, Any]], champion: str, before: Mapping[str, Any]
) -> dict[str, int]:
    """Looks that each server has been behind the champion for, from those before. Pure."""
    return {
        str(row["server"]): 0
        if row["fault"] == "" and row["pair"] == champion
        else int(before.get(str(row["server"]), 0)) + 1
        for row in rows
    }


def look_at_servers(
    found: Settings,
    pairing: str,
    line: Pairing,
    champion: PairVersion | None,
    *,
    logger: logging.Logger | logging.LoggerAdapter[Any],
) -> list[dict[str, Any]]:
    """A row for each server of the pairing: what it serves, and for how many looks it is behind."""
    if not line.servers or champion is None:
        return []
    path = found.home / "flows" / "behind.json"
    known = read_json(path) or {}
    before = known.get(pairing)
    rows = served(found, line)
    looks = counted(rows, champion.pair_id, before if isinstance(before, dict) else {})
    for row in rows:
        behind = looks[row["server"]]
        if behind and behind % HURRIED_AFTER == 0 and not row["fault"]:
            try:
                hurry(found, row["server"])
            except (httpx.HTTPError, ValueError) as error:
                logger.warning("%s was not hurried: %s", row["server"], error)
        if behind >= TOLD_AFTER:
            what = row["fault"] or row["trouble"] or f"it serves {row['pair']}"
            logger.error(
                "%s is behind v%d of %s for %d looks: %s",
                *(row["server"], champion.version, pairing, behind, what),
            )
    write_json(path, {**known, pairing: looks})
    return [{"pairing": pairing, **row, "behind": looks[row["server"]]} for row in rows]
