"""Deletes what the exchange log has kept for long enough, also while nobody asks anything."""

from __future__ import annotations

import asyncio
import logging

from monitoring.exchanges import ExchangeLog

log = logging.getLogger("paceline.serving")

LONGEST_WAIT_SECONDS = 600.0


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
        await asyncio.sleep(min(exchanges.rotate_seconds, LONGEST_WAIT_SECONDS))
