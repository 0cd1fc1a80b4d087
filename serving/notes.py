"""Writes a journal's lines beside the event loop, strictly or as far as the disk lets it."""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial

from serving.journal import ABANDONED, ASKED, Journal
from serving.passing import in_passing_thread

log = logging.getLogger("paceline.serving")


class Notes:
    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    async def write(self, step: str, pair: str, version: str, why: str = "") -> None:
        """Raises OSError where the step could not be written."""
        await in_passing_thread(partial(self.journal.write, step, pair, version, why))

    async def jot(self, step: str, pair: str, version: str, why: str = "") -> None:
        """Write it if the disk takes it."""
        try:
            await self.write(step, pair, version, why)
        except OSError as error:
            log.warning("the journal takes nothing (%s): %s of pair %s", error, step, pair)

    def asked_to_end(self) -> None:
        """The process ends in order: the next start is not to take it for a crash."""
        left = self.journal.unfinished
        if left is not None:
            with suppress(OSError):
                self.journal.write(ABANDONED, left.pair, left.version, ASKED)
