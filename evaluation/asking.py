"""Asks again where an endpoint failed, counts the failures of each arm, and knows when to stop.

One failure may be chance; several in a row mean that the endpoint died, hangs or lies, and then
nothing more is asked. Knows a callable that asks; nothing of HTTP or of what an answer means.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from evaluation.client import MeasurementError

Answered = TypeVar("Answered")
CONSECUTIVE_ERRORS = 4  # as argo-rollouts' consecutiveErrorLimit; a hang costs a time-out each
PAUSE_SECONDS = 0.5  # before the second try; twice as long before each further one


class EndedError(MeasurementError):
    """Measuring ends here, for the reason that the message gives."""


class Asking:
    """Retries for one measurement. Safe to use from several threads."""

    def __init__(
        self,
        *,
        sleep: Callable[[float], object],
        failed: Callable[[str, str], None] = lambda arm, why: None,  # told of each failure
        most: int = CONSECUTIVE_ERRORS,
    ) -> None:
        self._sleep, self._failed, self._most = sleep, failed, most
        self._in_a_row = 0
        self._ended: str | None = None  # why
        self._lock = threading.Lock()

    def __call__(self, arm: str, ask: Callable[[], Answered]) -> Answered:
        """What `ask` answers. Raises EndedError after too many failures in a row."""
        pause = PAUSE_SECONDS
        while True:
            try:
                answer = ask()
            except EndedError:
                raise
            except MeasurementError as error:
                self._count(arm, error)
                self._sleep(pause)
                pause *= 2
            else:
                with self._lock:
                    self._in_a_row = 0
                return answer

    def _count(self, arm: str, error: MeasurementError) -> None:
        with self._lock:
            if self._ended is not None:  # what was in flight at the end says nothing more
                raise EndedError(self._ended) from error
            self._in_a_row += 1
            self._failed(arm, str(error))
            if self._in_a_row >= self._most:
                self._ended = f"{error} ({self._in_a_row} failures in a row)"
                raise EndedError(self._ended) from error


def tally(failures: Mapping[str, int]) -> str:
    """Failures for people."""
    return ", ".join(f"{arm} {count}" for arm, count in failures.items() if count)
