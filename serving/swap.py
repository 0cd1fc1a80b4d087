"""Follows the alias `champion` of one pairing: fetch beside, check, load, probe, switch.

Knows the registry's lean reader, the journal and the order of steps; knows nothing of requests.
Polling is the truth, `hurry` only shortens the wait. Whatever fails, the pair that is served serves
on, and the failure is told once. While nothing is served and the registry is away or its champion
is refused, the last pair that was served is taken from the disk.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import shutil
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from monitoring.outbox import Outbox
from registry.errors import DigestError, RegistryError
from registry.manifest import PairManifest, read_manifest, verify_files
from registry.remote import SAFE_PAIR_ID, RemotePair
from serving import journal as steps
from serving.journal import Journal
from serving.loading import Host, Loaded, RefusedPairError, registered_arm
from serving.passing import in_passing_thread
from serving.probing import ProbeError
from serving.service import Service
from speculation.records import Alarm

log = logging.getLogger("paceline.serving")

PAIRS_KEPT = 4  # on disk, the latest that were served
HISTORY = 50  # swaps told by /admin/pair
LONGEST_WAIT_SECONDS = 300.0  # between two tries of a pair that could not be fetched


@dataclass
class Refusal:
    """A pair that is not tried again until the alias moves, somebody asks, or its time has come."""

    version: str
    until: float | None  # the clock's seconds; None: only when asked


class Follower:
    """Keeps a service on the champion. `run` never returns; cancelling it between steps is safe."""

    def __init__(
        self,
        service: Service,
        *,
        champion: Callable[[], RemotePair | None],  # both may block, and raise RegistryError
        download: Callable[[RemotePair, Path], Path],
        outbox: Outbox | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.service = service
        self.home = service.settings.home / "serving"
        self.pairs = self.home / "pairs"
        self.journal = Journal(self.home / "journal.jsonl")
        self.history: deque[dict[str, Any]] = deque(maxlen=HISTORY)
        self.trouble: str | None = None  # why the registry could not be read
        self._champion, self._download, self._outbox = champion, download, outbox
        self._clock = clock
        self._hurried = asyncio.Event()
        self._refused: dict[str, Refusal] = {}
        self._told: set[tuple[str, str]] = set()  # pair and version whose failure has been told
        self._tries: dict[str, int] = {}
        self._leaving: asyncio.Future[None] | None = None  # done when the last pair is let go
        service.follow(hurry=self.hurry, describe=self.describe)

    def hurry(self) -> None:
        """Look now, and try again what was refused."""
        self._refused.clear()
        self._tries.clear()
        self._hurried.set()

    def describe(self) -> dict[str, Any]:
        settings = self.service.settings
        return {
            "pairing": settings.pairing,
            "trouble": self.trouble,
            "swaps": list(self.history),
        }

    async def run(self) -> None:
        """Look, wait, look again."""
        await asyncio.to_thread(self._clean)
        while True:
            self._hurried.clear()
            await self.look()
            try:
                async with asyncio.timeout(self.service.settings.poll_seconds):
                    await self._hurried.wait()
            except TimeoutError:
                pass

    async def look(self) -> None:
        """Ask the registry once, and swap when the alias names another pair."""
        try:
            named = await asyncio.to_thread(self._champion)
        except RegistryError as error:
            if self.trouble is None:
                log.warning("the registry cannot be read, %s: %s", self._serving(), error)
            self.trouble = str(error)
            await self._fall_back()
            return
        if self.trouble is not None:
            log.info("the registry can be read again")
            self.trouble = None
        if named is not None and not self._is_served(named) and self._may_try(named):
            await self._swap(named)
        if named is not None:
            await self._fall_back()

    def _serving(self) -> str:
        current = self.service.worker.current
        return "nothing is served" if current is None else f"pair {current.pair} serves on"

    def _is_served(self, named: RemotePair) -> bool:
        current = self.service.worker.current
        if current is None or current.pair != named.pair_id:
            return False
        current.version = str(named.version)  # the same pair, registered once more
        return True

    def _may_try(self, named: RemotePair) -> bool:
        refusal = self._refused.get(named.pair_id)
        if refusal is None or refusal.version != str(named.version):
            return True
        return refusal.until is not None and self._clock() >= refusal.until

    async def _swap(self, named: RemotePair) -> None:
        pair, version = named.pair_id, str(named.version)
        if not named.judged:
            log.warning("pair %s has the alias without a PASS: it was moved by hand", pair)
        self.journal.write(steps.FOUND, pair, version)
        begun = self._clock()
        try:
            folder = await asyncio.to_thread(self._download, named, self.pairs)
            self.journal.write(steps.DOWNLOADED, pair, version)
            await self._take(folder, pair, version)
        except Exception as error:  # whatever it was, what is served goes on
            self._failed(pair, version, error)
        else:
            self._refused.clear()
            self._tries.clear()
            self.service.metrics.swaps["switched"] += 1
            self._remember("swapped", pair, version, seconds=self._clock() - begun)
            log.info("pair %s (version %s) serves", pair, version)

    async def _take(self, folder: Path, pair: str, version: str) -> None:
        """Check, load, probe and switch to the pair in `folder`."""
        if self._leaving is not None:  # two pairs in memory at most, and the one being loaded
            await asyncio.shield(self._leaving)
        loaded = await in_passing_thread(partial(self._load, folder, pair, version))
        self.journal.write(steps.LOADED, pair, version)
        await self.service.warm(loaded)
        before = self.service.worker.current
        try:
            self.journal.write(steps.PROBED, pair, version)
            self.journal.write(steps.SWITCHED, pair, version)
        except OSError:
            await self.service.worker.close(loaded)
            raise
        self._leaving = self.service.worker.switch(loaded)
        if before is not None:
            gone = before.pair, before.version or ""
            self._leaving.add_done_callback(lambda _: self._freed(*gone))

    def _load(self, folder: Path, pair: str, version: str) -> Loaded:
        manifest = read_manifest(folder)
        if manifest.pair_id != pair:
            raise RefusedPairError(f"{folder} holds pair {manifest.pair_id}, wanted {pair}")
        verify_files(manifest, folder, under="draft/")
        settings = self.service.settings
        current = self.service.worker.current
        if current is not None and current.host.release.digest == manifest.release.digest:
            host = current.host  # a draft-only swap: the target stays where it is
        else:
            host = Host.load(_target_folder(manifest), settings)
        arm = registered_arm(host, manifest, folder)
        return Loaded.prepare(host, {arm.name: arm}, settings, version)

    async def _fall_back(self) -> None:
        """Serve the last good pair from the disk if nothing is served."""
        good = self.journal.last_good
        if self.service.worker.current is not None or good is None:
            return
        refusal = self._refused.get(good.pair)
        if refusal is not None and refusal.version == good.version:
            return
        try:
            await self._take(self.pairs / good.pair, good.pair, good.version)
        except Exception as error:  # as above: a broken copy must not end the follower
            self._failed(good.pair, good.version, error)
        else:
            self._remember("swapped", good.pair, good.version, why="from the local copy")
            log.warning("pair %s serves from its local copy", good.pair)

    def _failed(self, pair: str, version: str, error: Exception) -> None:
        """Keep what is served; tell it once; wait before the next try, or for somebody to ask."""
        why = f"{type(error).__name__}: {error}"
        tries = self._tries[pair] = self._tries.get(pair, 0) + 1
        poll = self.service.settings.poll_seconds
        wait = min(poll * 2**tries, LONGEST_WAIT_SECONDS)
        self._refused[pair] = Refusal(version, None if _lasting(error) else self._clock() + wait)
        if (pair, version) in self._told:
            return
        self._told.add((pair, version))
        self.service.metrics.swaps["failed"] += 1
        step = self._remember("failed", pair, version, why=why)
        log.error("pair %s (version %s) is refused, %s: %s", pair, version, self._serving(), why)
        try:
            self.journal.write(steps.FAILED, pair, version, why)
            if self._outbox is not None:
                self._outbox.put(_alarm(pair, version, why, step["at"]))
        except OSError as full:
            log.error("the failure could not be written down: %s", full)

    def _remember(
        self, outcome: str, pair: str, version: str, *, why: str = "", seconds: float = 0.0
    ) -> dict[str, Any]:
        entry = {
            "at": time.time(),
            "outcome": outcome,
            "pair": pair,
            "version": version,
            "why": why,
            "seconds": round(seconds, 3),
        }
        self.history.append(entry)
        return entry

    def _freed(self, pair: str, version: str) -> None:
        gc.collect()  # modules hold their hooks in cycles; their weights are to go now
        try:
            self.journal.write(steps.FREED, pair, version)
            self._prune()
        except OSError as error:
            log.warning("old pairs could not be cleared away: %s", error)

    def _prune(self) -> None:
        kept = set(self.journal.switched()[:PAIRS_KEPT])
        for pair in self.journal.switched()[PAIRS_KEPT:]:
            if pair not in kept:
                shutil.rmtree(self.pairs / pair, ignore_errors=True)

    def _clean(self) -> None:
        """Remove what a download that was cut short has left."""
        if self.pairs.is_dir():
            for leftover in self.pairs.iterdir():
                if leftover.is_dir() and not SAFE_PAIR_ID.fullmatch(leftover.name):
                    shutil.rmtree(leftover, ignore_errors=True)


def _lasting(error: Exception) -> bool:
    """Whether trying the same pair again would end the same."""
    return isinstance(error, (ValueError, DigestError, ProbeError))


def _target_folder(manifest: PairManifest) -> Path:
    """Where the release lies. Raises RefusedPairError for a URI that is no folder here."""
    uri = manifest.release_uri
    parts = urlsplit(uri)
    if parts.scheme not in ("", "file") or parts.netloc not in ("", "localhost"):
        raise RefusedPairError(
            f"release {manifest.release.digest[:12]} lives at {uri}: wanted a folder of this host"
        )
    folder = Path(unquote(parts.path) if parts.scheme == "file" else uri)
    if not folder.is_dir():
        raise RefusedPairError(f"the release's folder {folder} is not there: put it back")
    return folder


def _alarm(pair: str, version: str, why: str, at: float) -> Alarm:
    key = hashlib.sha256(f"{pair}/{version}/{why}".encode()).hexdigest()[:12]
    return Alarm(
        id=f"swap-{pair}-{key}",
        pair=pair,
        release="",
        cause="swap_failed",
        statement=f"pair {pair} (version {version}) could not be served: {why}",
        since=at,
        requests=0,
    )
