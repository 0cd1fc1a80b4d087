"""Watches a pair being swapped under load: requests go on without a pause, and every one counts.

Knows HTTP and clocks; knows nothing of why a pair is swapped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx

from cli.demo_traffic import ask, endpoint
from speculation.records import Prompt

POLL_SECONDS = 0.2


@dataclass
class Load:
    """What the requests of a running load came to; times are seconds since the epoch."""

    spans: list[tuple[float, float, bool]] = field(default_factory=list)  # begun, ended, answered
    faults: list[str] = field(default_factory=list)

    def in_flight_at(self, moment: float) -> int:
        """Requests that were under way at `moment`."""
        return sum(begun < moment < ended for begun, ended, _ in self.spans)

    @property
    def failed(self) -> int:
        return sum(not answered for _, _, answered in self.spans)


@contextmanager
def under_load(
    url: str,
    prompts: Sequence[Prompt],
    *,
    at_once: int,
    max_tokens: int,
    check: Callable[[], None],  # raises where the server is gone
) -> Iterator[Load]:
    """Keep `at_once` requests running while the block runs; all have ended when it is left."""
    load, ending, numbers = Load(), threading.Event(), count()

    check()
    with endpoint(url) as (client, model):  # one client: threads may share it

        def keep_asking() -> None:
            while not ending.is_set():
                prompt = prompts[next(numbers) % len(prompts)]
                begun = time.time()
                try:
                    ask(client, prompt, model=model, max_tokens=max_tokens)
                except (httpx.HTTPError, KeyError, ValueError) as error:
                    load.faults.append(str(error) or type(error).__name__)
                    load.spans.append((begun, time.time(), False))
                    ending.wait(0.2)  # a server that is gone must not be asked in a tight loop
                else:
                    load.spans.append((begun, time.time(), True))

        threads = [threading.Thread(target=keep_asking, daemon=True) for _ in range(at_once)]
        for thread in threads:
            thread.start()
        try:
            yield load
            check()
        finally:
            ending.set()
            for thread in threads:
                thread.join(130.0)


def wait_for_pair(
    url: str, pair: str, *, seconds: float, check: Callable[[], None]
) -> dict[str, Any] | None:
    """What the server tells of itself once it serves `pair`; None when it does not in time.

    Raises what `check` raises, where the server is gone.
    """
    deadline = time.monotonic() + seconds
    with httpx.Client(base_url=url, timeout=10.0, trust_env=False) as client:
        while time.monotonic() < deadline:
            check()
            told: dict[str, Any] = client.get("/admin/pair").json()
            if told.get("pair") == pair:
                return told
            time.sleep(POLL_SECONDS)
    return None


def swapped_at(told: Mapping[str, Any], pair: str) -> float | None:
    """When the server swapped to `pair` (seconds since the epoch); None where it began with it."""
    history = [entry for entry in told.get("swaps", []) if entry["outcome"] == "swapped"]
    if len(history) < 2 or history[-1]["pair"] != pair:
        return None
    return float(history[-1]["at"])
