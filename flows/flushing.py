"""Prefect sends logs and events in the background: have it finish while its server still answers.

Only for a process that runs a flow itself and then ends the server; otherwise Prefect does the same
as the interpreter ends, and tries a server that is gone for a minute.
"""

from __future__ import annotations

from prefect.events.worker import EventsWorker
from prefect.logging.handlers import APILogWorker

SECONDS = 10.0  # a server that does not answer is not waited for


def flush() -> None:
    """Send what is held back."""
    for sender in (APILogWorker, EventsWorker):
        sender.drain_all(timeout=SECONDS)
