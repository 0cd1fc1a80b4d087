"""What a draft does wrong while it serves: counted, said, and one alarm for as long as it lasts.

Nobody's answer suffers from it (`speculation.guard` sees to that), so nobody would notice but by
the speed. Knows breakers, metrics and the outbox; nothing of requests.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from monitoring.outbox import Outbox
from serving.loading import Loaded
from serving.metrics import Metrics
from serving.passing import in_passing_thread
from serving.series import Labels
from speculation.breaker import Breaker, DrafterFault
from speculation.records import Alarm

log = logging.getLogger("paceline.serving")


class Faults:
    """Made inside the event loop that it serves in. Without an outbox nothing is alarmed."""

    def __init__(
        self, metrics: Metrics, outbox: Outbox | None, *, now: Callable[[], float] = time.time
    ) -> None:
        self._metrics, self._outbox, self._now = metrics, outbox, now
        self._loop = asyncio.get_running_loop()
        # Times that a breaker opened, as told. By the breaker itself: an engine that is made anew,
        # or a pair that is loaded once more, has others, which begin at none.
        self._opened: WeakKeyDictionary[Breaker, int] = WeakKeyDictionary()
        self._trying: Loaded | None = None
        self._telling: set[asyncio.Task[None]] = set()

    def told(self, loaded: Loaded, drafter: str, fault: DrafterFault) -> None:
        """A drafter failed. In the engines' thread, in the middle of a step."""
        breaker = loaded.engine.breakers[drafter]
        opened, relapsed = breaker.opened, breaker.relapsed
        try:
            self._loop.call_soon_threadsafe(
                partial(self._note, loaded, drafter, fault, breaker, opened, relapsed)
            )
        except RuntimeError:  # the loop is closed: the server has ended
            log.warning("the draft %s failed (%s): %s", drafter, fault.kind, fault.message)

    @contextmanager
    def trying(self, loaded: Loaded) -> Iterator[None]:
        """What fails of `loaded` meanwhile is its probe's business, and no alarm."""
        before, self._trying = self._trying, loaded
        try:
            yield
        finally:
            self._trying = before

    def describe(self, loaded: Loaded) -> dict[str, Any]:
        """Each of a pair's drafters: its breaker's state, what it did wrong, whether it pays."""
        engine = loaded.running
        if engine is None:  # it is being made again
            return {}
        paces = engine.paces
        return {
            name: {**_described(breaker), "pace": str(paces[name].state) if name in paces else None}
            for name, breaker in engine.breakers.items()
        }

    def _note(
        self,
        loaded: Loaded,
        drafter: str,
        fault: DrafterFault,
        breaker: Breaker,
        opened: int,
        relapsed: bool,
    ) -> None:
        arm = loaded.arms[drafter]
        log.warning(
            "the draft %s of pair %s failed (%s): %s", drafter, arm.pair, fault.kind, fault.message
        )
        self._metrics.fault(Labels(arm.pair, arm.name), fault.kind)
        if loaded is self._trying:
            return
        fresh = opened > self._opened.get(breaker, 0) and not relapsed
        self._opened[breaker] = opened
        if not fresh:
            return
        log.error("the draft %s of pair %s is left alone for now", drafter, arm.pair)
        if self._outbox is not None:
            alarm = _alarm(arm.pair, loaded.host.release.digest, drafter, fault, self._now())
            task = asyncio.ensure_future(self._tell(self._outbox, alarm))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def _tell(self, outbox: Outbox, alarm: Alarm) -> None:
        try:
            await in_passing_thread(lambda: outbox.put(alarm))
        except OSError as full:
            log.error("the alarm could not be written down: %s", full)


def _described(breaker: Breaker) -> dict[str, Any]:
    latest = breaker.recent[-1] if breaker.recent else None
    return {
        "breaker": str(breaker.state),
        "opened": breaker.opened,
        "faults": dict(breaker.counts),
        "latest": None if latest is None else f"{latest.kind}: {latest.message}",
    }


def _alarm(pair: str, release: str, drafter: str, fault: DrafterFault, at: float) -> Alarm:
    key = hashlib.sha256(f"{pair}/{drafter}/{at}".encode()).hexdigest()[:12]
    return Alarm(
        id=f"drafter-{pair}-{key}",
        pair=pair,
        release=release,
        cause="drafter_fault",
        statement=f"the draft {drafter} of pair {pair} failed too often and is left alone, "
        f"requests decode plainly: last {fault.kind}, {fault.message}",
        since=at,
        requests=0,
    )
