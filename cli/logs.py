"""Where the log of a command that stays goes: to people, and as lines of JSON to programs."""

from __future__ import annotations

import json
import logging
from typing import IO


def log_to(people: IO[str], programs: IO[str] | None) -> None:
    """What Paceline logs: text on stderr, and lines of JSON on stdout where programs read it."""
    logger = logging.getLogger("paceline")
    logger.setLevel(logging.INFO)
    logger.handlers.clear()
    text = logging.StreamHandler(people)
    text.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(text)
    logger.propagate = False
    if programs is not None:
        lines = logging.StreamHandler(programs)
        lines.setFormatter(Lines())
        logger.addHandler(lines)


class Lines(logging.Formatter):
    """A log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        told = {"at": record.created, "level": record.levelname.lower(), "from": record.name}
        return json.dumps({**told, "message": record.getMessage()})
