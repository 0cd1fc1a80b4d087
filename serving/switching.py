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

from registry.errors import ChangedFolderError, RegistryError
from serving import journal as steps
from serving.arms import Arm
from serving.loading import Host, Loaded
from serving.notes import Notes
from serving.pairs_on_disk import CheckedPair, PairsOnDisk, TargetOnDisk
from serving.passing import in_passing_thread
from serving.room import Need, draft_need, fits, target_need
from serving.service import Service

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
        self.interrupted = False  # whether the last `take` let the served pair go first
        self._newest: Callable[[], object] = _nothing  # what was loaded last, while it is there

    async def check(self, pair: str, version: str) -> CheckedPair:
        """All that can be said of a pair on the disk without loading it. Raises as it does."""
        current = self._service.worker.current
        served = None if current is None else _on_disk(current.host)
        return await in_passing_thread(partial(self._pairs.check, pair, version, served))

    async def take(
        self, checked: CheckedPair, *, back: Callable[[Host | None], Awaitable[None]]
    ) -> None:
        """Load, try and switch to a pair. Whatever it raises, what was served before serves on, and
        nothing of the new pair is left in memory.

        Where two do not fit, what is served is let go first, and `back` is what serves it again; it
        is given the target if that is still in memory.
        """
        self.interrupted = False
        if self._leaving is not None:
            await asyncio.shield(self._leaving)
        current = self._service.worker.current
        if current is None:
            await self._switch(checked, None)
            return
        same = _holds(current.host, checked.target)
        host = current.host if same else None  # a draft-only swap: the target stays where it is
        served = _on_disk(current.host), current.own
        del current
        if await in_passing_thread(partial(self._fits, checked, same=same)):
            await self._switch(checked, host)
        else:
            await in_passing_thread(partial(self._check_room, checked, *served, same=same))
            await self._drain_and_switch(checked, host, back)

    async def load(self, checked: CheckedPair, host: Host | None) -> Loaded:
        """Its draft, and its target too unless `host` is that."""
        settings, target = self._service.settings, checked.target

        def loaded() -> Loaded:
            on = host
            if on is None or not _holds(on, target):
                on = Host.load(
                    target.folder, settings, target.release, target.stamp, target.adapter_folders
                )
                if not _holds(on, target):  # what is loaded is looked at once more, as bytes
                    raise ChangedFolderError(
                        "an adapter's folder was changed after it was looked at and before it was "
                        "loaded: put it back, and leave it alone"
                    )
                self._newest = weakref.ref(on.target)
            made = Loaded.prepare(on, {checked.arm.name: checked.arm}, settings, checked.version)
            if on is host:
                self._newest = weakref.ref(made)
            return made

        begun, self._newest = time.monotonic(), _nothing
        result = await in_passing_thread(loaded)
        self._load_seconds = time.monotonic() - begun
        return result

    def _fits(self, checked: CheckedPair, *, same: bool) -> bool:
        settings = self._service.settings
        if settings.together is not None and not same:
            return settings.together
        need = self._need(checked.target, checked.arm, same=same)
        return fits(need, self._free(settings.device))

    def _check_room(
        self, checked: CheckedPair, served: TargetOnDisk, arm: Arm, *, same: bool
    ) -> None:
        """Raises SwapError for a pair that does not even fit where the served one is now."""
        need = self._need(checked.target, checked.arm, same=same)
        free = self._free(self._service.settings.device)
        try:
            back = self._need(served, arm, same=same).bytes
        except RegistryError:  # its folder is gone, and with it what could be said of it
            return
        if free is not None and not fits(need, free + back, reserve=0.0):
            raise SwapError(
                f"pair {checked.pair} takes about {need.bytes} bytes, and {free + back} are free "
                "once what is served is let go: it serves on; give more memory, or a smaller "
                "max_context or max_slots"
            )

    def _need(self, target: TargetOnDisk, arm: Arm, *, same: bool) -> Need:
        """What a pair takes; without the target's weights where the target is the `same`."""
        settings, context = self._service.settings, target.release.context_configured
        need = target_need(settings, target.folder, context)
        if same:
            need = Need(0, need.cache_bytes)
        if isinstance(arm.draft, Path):
            need += draft_need(settings, arm.draft, context)
        return need

    async def _switch(self, checked: CheckedPair, host: Host | None) -> None:
        """Load beside what is served, try, switch. What fails leaves nothing in memory: neither the
        old pair, which may have to be loaded again, nor the next try would find room beside it."""
        try:
            await self._load_and_switch(checked, host)
            return
        except Exception as error:
            failed = error
        _forget_frames(failed)
        await self._until_gone(self._newest, checked.pair)
        raise failed

    async def _load_and_switch(self, checked: CheckedPair, host: Host | None) -> None:
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
                return
            except Exception as error:
                failed = error
            await back(host)
            raise failed

    async def _let_go(self, *, keep_target: bool) -> None:
        """Free the served pair; what it was is loaded again from the disk if need be."""
        worker = self._service.worker
        old, worker.current = worker.current, None
        assert old is not None
        self.interrupted = True
        pair, version = old.pair, old.version or ""
        held = weakref.ref(old) if keep_target else weakref.ref(old.host.target)
        gone = worker.close(old)
        del old
        await gone
        await self._until_gone(held, pair)
        await self._notes.jot(steps.FREED, pair, version)

    async def _until_gone(self, held: Callable[[], object], pair: str) -> None:
        """Wait until nothing is `held` any more, and the memory is free; not for ever."""
        end = time.monotonic() + FREED_SECONDS
        # A model's modules refer to each other, and threads are in their last frames.
        await in_passing_thread(gc.collect)
        while held() is not None and time.monotonic() < end:
            await asyncio.sleep(0.05)
            await in_passing_thread(gc.collect)
        if held() is not None:
            log.warning("pair %s is still held by something: its memory is not free", pair)

    async def _freed(self, gone: asyncio.Future[None], pair: str, version: str) -> None:
        await gone
        # A model's modules refer to each other; their memory is to go now.
        await in_passing_thread(gc.collect)
        await self._notes.jot(steps.FREED, pair, version)


def _on_disk(host: Host) -> TargetOnDisk:
    """A loaded target, by where its files were."""
    return TargetOnDisk(
        host.folder, host.release, host.adapters, host.adapter_folders, stamp=host.stamp
    )


def _holds(host: Host, target: TargetOnDisk) -> bool:
    """Whether a loaded target is that one, with those adapters: then it stays where it is."""
    same = host.release.digest == target.release.digest
    return same and dict(host.adapters) == dict(target.adapters)


def _nothing() -> None:
    """Stands for what was never loaded."""


def _forget_frames(failed: BaseException) -> None:
    """A failure's frames hold what was being done, such as a target; what it says is enough."""
    chain = [failed]
    for error in chain:
        error.__traceback__ = None
        before = (error.__cause__, error.__context__)
        chain += [one for one in before if one is not None and one not in chain]
