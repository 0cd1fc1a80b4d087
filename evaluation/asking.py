"""Asks again where an endpoint failed, counts the failures of each arm, and knows when to stop.

One failure may be chance, and of eight requests at once one hiccup fails all. But a request that
fails again and again, with a pause before each try, means that the endpoint died, hangs, lies or
cannot answer it: then nothing more is asked. Failures after which nothing that was asked got an
answer are then told apart: the endpoint was gone, and no request of them was at fault. Knows a
callable that asks; nothing of HTTP or of what an answer means.
"""

from __future__ import annotations

import threading
from collections import Counter
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
        gone: Callable[[Mapping[str, int]], None] = lambda failures: None,  # of those, at the end
        most: int = CONSECUTIVE_ERRORS,
    ) -> None:
        self._sleep, self._failed, self._gone, self._most = sleep, failed, gone, most
        self._ended: str | None = None  # why
        self._sent = 0  # tries so far, which numbers them
        self._unanswered: list[tuple[int, str]] = []  # tries sent when an arm failed, and the arm
        self._lock = threading.Lock()

    def __call__(self, arm: str, ask: Callable[[], Answered]) -> Answered:
        """What `ask` answers. Raises EndedError after too many failures in a row."""
        pause, failures = PAUSE_SECONDS, 0
        while True:
            with self._lock:
                self._sent += 1
                number = self._sent
            try:
                answer = ask()
            except EndedError:
                raise
            except MeasurementError as error:
                failures += 1
                self._count(arm, error, failures)
                self._sleep(pause)
                pause *= 2
            else:
                self._answered(number)
                return answer

    def end(self, why: str) -> None:
        """What is in flight is given up: that it fails says nothing of the endpoint."""
        with self._lock:
            self._ended = self._ended or why

    def _answered(self, number: int) -> None:
        """The endpoint lived when this was sent, so what failed before that was no end."""
        with self._lock:
            self._unanswered = [(sent, arm) for sent, arm in self._unanswered if sent >= number]

    def _count(self, arm: str, error: MeasurementError, failures: int) -> None:
        with self._lock:
            if self._ended is not None:  # what was in flight at the end says nothing more
                raise EndedError(self._ended) from error
            self._failed(arm, str(error))
            self._unanswered.append((self._sent, arm))
            if failures >= self._most:
                self._ended = f"{error} ({failures} failures in a row)"
                self._gone(Counter(arm for _, arm in self._unanswered))
                raise EndedError(self._ended) from error
