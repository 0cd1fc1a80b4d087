"""Deletes what the exchange log has kept for long enough, also while nobody asks anything."""

from __future__ import annotations

import asyncio
import logging

from monitoring.exchanges import ExchangeLog

log = logging.getLogger("paceline.serving")

SHORTEST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 1.0, 600.0


async def retained(exchanges: ExchangeLog) -> None:
    """Look now and then, for as long as the server runs."""
    failing = False
    while True:
        try:
            exchanges.expire()
        except OSError as error:
            if not failing:
                log.error("old exchanges in %s cannot be deleted: %s", exchanges.folder, error)
            failing = True
        else:
            failing = False
        wait = max(exchanges.rotate_seconds, SHORTEST_WAIT_SECONDS)
        await asyncio.sleep(min(wait, LONGEST_WAIT_SECONDS))
