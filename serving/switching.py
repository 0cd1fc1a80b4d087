"""From a checked pair on the disk to the one that serves: beside what is served, or after it.

Knows the worker, memory and the order of loading, trying and letting go; knows nothing of the
registry, and decides nothing of which pair is to be served.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import time
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from serving import journal as steps
from serving.loading import Host, Loaded
from serving.notes import Notes
from serving.pairs_on_disk import CheckedPair, PairsOnDisk, TargetOnDisk
from serving.passing import in_passing_thread
from serving.room import Need, fits, need_of
from serving.service import Service
from speculation.cache import ROOM

log = logging.getLogger("paceline.serving")

FREED_SECONDS = 10.0  # for the last references to an old pair to go
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 10, 120  # told to clients while nothing is in memory


class SwapError(RuntimeError):
    """A swap that could not be done now, for no fault of the pair's."""


class Switching:
    """Two pairs are in memory at most, and the one that is being loaded."""

    def __init__(
        self,
        service: Service,
        pairs: PairsOnDisk,
        notes: Notes,
        free: Callable[[str], int | None],  # bytes of a device; None where nobody can tell
    ) -> None:
        self._service, self._pairs, self._notes, self._free = service, pairs, notes, free
        self._load_seconds: float = FIRST_RETRY_SECONDS  # that the last load took
        self._leaving: asyncio.Task[None] | None = None  # done when the last pair is let go

    async def check(self, pair: str, version: str) -> CheckedPair:
        """All that can be said of a pair on the disk without loading it. Raises as it does."""
        current = self._service.worker.current
        served = (
            None if current is None else TargetOnDisk(current.host.folder, current.host.release)
        )
        return await in_passing_thread(partial(self._pairs.check, pair, version, served))

    async def take(
        self, checked: CheckedPair, *, back: Callable[[Host | None], Awaitable[None]]
    ) -> None:
        """Load, try and switch to a pair. Whatever it raises, what was served before serves on.

        Where two do not fit, it is let go first, and `back` is what serves it again; it is given
        the target if that is still in memory.
        """
        if self._leaving is not None:
            await asyncio.shield(self._leaving)
        current = self._service.worker.current
        if current is None:
            await self._switch(checked, None)
            return
        same = current.host.release.digest == checked.target.release.digest
        host = current.host if same else None  # a draft-only swap: the target stays where it is
        del current
        if await in_passing_thread(partial(self._fits, checked, same=same)):
            await self._switch(checked, host)
        else:
            await self._drain_and_switch(checked, host, back)

    async def load(self, checked: CheckedPair, host: Host | None) -> Loaded:
        """Its draft, and its target too unless `host` is that."""
        settings, target = self._service.settings, checked.target

        def loaded() -> Loaded:
            on = host
            if on is None or on.release.digest != target.release.digest:
                on = Host.load(target.folder, settings, target.release)
            return Loaded.prepare(on, {checked.arm.name: checked.arm}, settings, checked.version)

        begun = time.monotonic()
        result = await in_passing_thread(loaded)
        self._load_seconds = time.monotonic() - begun
        return result

    def _fits(self, checked: CheckedPair, *, same: bool) -> bool:
        settings, context = self._service.settings, checked.target.release.context_configured
        if settings.together is not None and not same:
            return settings.together
        tokens = settings.max_slots * (min(settings.max_context, context) + ROOM)
        target = need_of(
            checked.target.folder,
            cached_tokens=tokens + settings.prefix_tokens,
            dtype=settings.dtype,
        )
        need = Need(0, target.cache_bytes) if same else target
        if isinstance(checked.arm.draft, Path):
            need += need_of(checked.arm.draft, cached_tokens=tokens, dtype=settings.dtype)
        return fits(need, self._free(settings.device))

    async def _switch(self, checked: CheckedPair, host: Host | None) -> None:
        """Load beside what is served, let it answer, send new requests to it."""
        worker, pair, version = self._service.worker, checked.pair, checked.version
        loaded = await self.load(checked, host)
        await self._notes.write(steps.LOADED, pair, version)
        await self._service.warm(loaded)
        before = worker.current
        try:
            await self._notes.write(steps.PROBED, pair, version)
            await self._notes.write(steps.SWITCHED, pair, version)
        except OSError:
            await worker.close(loaded)
            raise
        gone = worker.switch(loaded)
        if before is not None:
            self._leaving = asyncio.ensure_future(
                self._freed(gone, before.pair, before.version or "")
            )

    async def _drain_and_switch(
        self,
        checked: CheckedPair,
        host: Host | None,
        back: Callable[[Host | None], Awaitable[None]],
    ) -> None:
        """Let what runs end, let the served pair go, and only then load the new one."""
        worker, settings = self._service.worker, self._service.settings
        log.warning("pair %s does not fit beside what is served: it is drained", checked.pair)
        retry = min(max(math.ceil(self._load_seconds), 1), LONGEST_RETRY_SECONDS)
        with self._service.hold("the served pair is being replaced", retry):
            try:
                async with asyncio.timeout(settings.deadline_seconds):
                    await worker.drained()
            except TimeoutError:
                raise SwapError(
                    f"requests did not end within {settings.deadline_seconds:g} s, and the pair "
                    "does not fit beside the one they run on"
                ) from None
            await self._let_go(keep_target=host is not None)
            try:
                await self._switch(checked, host)
            except Exception:
                await back(host)
                raise

    async def _let_go(self, *, keep_target: bool) -> None:
        """Free the served pair; what it was is loaded again from the disk if need be."""
        worker = self._service.worker
        old, worker.current = worker.current, None
        assert old is not None
        pair, version = old.pair, old.version or ""
        held = weakref.ref(old) if keep_target else weakref.ref(old.host.target)
        gone = worker.close(old)
        del old
        await gone
        end = time.monotonic() + FREED_SECONDS
        while held() is not None and time.monotonic() < end:  # a reply holds it until it is sent
            await in_passing_thread(gc.collect)
            await asyncio.sleep(0.05)
        if held() is not None:
            log.warning("pair %s is still held by something: its memory is not free", pair)
        await self._notes.jot(steps.FREED, pair, version)

    async def _freed(self, gone: asyncio.Future[None], pair: str, version: str) -> None:
        await gone
        # A model's modules refer to each other; their memory is to go now.
        await in_passing_thread(gc.collect)
        await self._notes.jot(steps.FREED, pair, version)
