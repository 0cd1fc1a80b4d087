"""Follows the alias `champion` of one pairing: fetch beside, check, load, probe, switch.

Knows the registry's lean reader, the journal and the order of steps; knows nothing of requests.
Polling is the truth, `hurry` only shortens the wait. Whatever fails, the pair that is served serves
on, and the failure is told once. While nothing is served, the last pair that was is taken from the
disk before the registry is asked, so that no start waits for one.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from monitoring.outbox import Outbox
from registry.errors import DigestError, RegistryError
from registry.remote import RemotePair
from serving import journal as steps
from serving.fetching import InterruptedDownloadError, fetch
from serving.journal import PAIRS_KEPT, Journal
from serving.loading import Host
from serving.notes import Notes
from serving.pairs_on_disk import PairsOnDisk
from serving.passing import in_passing_thread
from serving.probing import ProbeError
from serving.refusals import Again, Named, Refusals
from serving.room import free_bytes
from serving.service import NOTHING, Service
from serving.switching import Switching
from speculation.records import Alarm

log = logging.getLogger("paceline.serving")

HISTORY = 50  # swaps told by /admin/pair
MOST_HARM = 2  # times that a pair may have ended the process before it is left alone
LOOK_SECONDS = 60.0  # for the registry to say which pair is champion


class RefusedChampionError(ValueError):
    """The alias names a pair that must not be served as things are."""


class Follower:
    """Keeps a service on the champion. `run` never returns; cancelling it is safe at any step."""

    def __init__(
        self,
        service: Service,
        *,
        champion: Callable[[], RemotePair | None],  # both may block, and raise RegistryError
        download: Callable[[RemotePair, Path, Callable[[], bool]], Path],
        outbox: Outbox | None = None,
        clock: Callable[[], float] = time.monotonic,
        free: Callable[[str], int | None] = free_bytes,  # of a device
    ) -> None:
        self.service = service
        home = service.settings.home / "serving"
        self.pairs = PairsOnDisk(home / "pairs")
        self.journal = Journal(home / "journal.jsonl", pairing=service.settings.pairing or "")
        self.history: deque[dict[str, Any]] = deque(maxlen=HISTORY)
        self.trouble: str | None = None  # why the registry cannot be followed
        self._champion, self._download, self._outbox = champion, download, outbox
        self._clock = clock
        self._notes = Notes(self.journal)
        self._switching = Switching(service, self.pairs, self._notes, free)
        self._hurried = asyncio.Event()
        self._refusals = Refusals(service.settings.poll_seconds, clock)
        self._asked = False  # by an operator, since the last download began
        self._reload = False  # the pair that is served is to be loaded anew
        self._wary = True  # of pairs that ended processes before this one; until somebody asks
        service.follow(hurry=self.hurry, nudge=self._hurried.set, describe=self.describe)

    def hurry(self, *, reload: bool = False) -> None:
        """Look now, and try again what was refused; with `reload`, load what is served anew: its
        files may be whole and what is in memory not."""
        self._reload = self._reload or reload
        self._refusals.forget()
        self._wary, self._asked = False, True
        self._hurried.set()

    def describe(self) -> dict[str, Any]:
        """What the admin side tells of it."""
        return {
            "pairing": self.service.settings.pairing,
            "trouble": self.trouble,
            "refused": self._refusals.describe(),
            "swaps": list(self.history),
        }

    async def run(self) -> None:
        """Look, wait, look again."""
        with suppress(OSError):  # leftovers are in nobody's way
            await in_passing_thread(self.pairs.clean)
        while True:
            self._hurried.clear()
            await self.look()
            with suppress(TimeoutError):
                async with asyncio.timeout(self.service.settings.poll_seconds):
                    await self._hurried.wait()

    async def look(self) -> None:
        """Ask the registry once, and swap when the alias names another pair."""
        try:
            if self.service.worker.current is None:
                await self._resume()
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    named = await in_passing_thread(self._champion)
            except (RegistryError, TimeoutError) as error:
                self._troubled(str(error) or f"the registry took more than {LOOK_SECONDS:g} s")
                return
            if named is None:
                self._unpromoted()
                return
            self.service.nothing = NOTHING
            if self.trouble is not None:
                log.info("the registry names a champion")
                self.trouble = None
            if not self._is_served(named):
                await self._consider(named)
        except Exception as error:  # the follower's edge: it must look again, whatever it was
            if self.trouble is None:
                log.exception("the registry cannot be followed, %s", self._serving())
            self.trouble = f"{type(error).__name__}: {error}"

    def _troubled(self, why: str) -> None:
        if self.trouble in (None, self._missing):
            log.warning("the registry cannot be read, %s: %s", self._serving(), why)
        self.trouble = why

    def _unpromoted(self) -> None:
        """There is no champion: not yet, not any more, or none of a name that was mistyped."""
        if self.trouble != self._missing:
            log.warning("%s, %s", self._missing, self._serving())
        self.trouble = self._missing
        # Clients are told as well, and where the registry is need not be their business.
        self.service.nothing = f"pairing {self.service.settings.pairing} has no champion"

    @property
    def _missing(self) -> str:
        settings = self.service.settings
        return (
            f"pairing {settings.pairing} has no champion at {settings.registry}: promote a pair, "
            "or check the name"
        )

    def _serving(self) -> str:
        current = self.service.worker.current
        return "nothing is served" if current is None else f"pair {current.pair} serves on"

    def _is_served(self, named: RemotePair) -> bool:
        current = self.service.worker.current
        if self._reload or current is None or current.pair != named.pair_id:
            return False
        current.version = str(named.version)  # the same pair, registered once more
        return True

    async def _consider(self, named: RemotePair) -> None:
        """Swap to the champion unless it is to be left alone."""
        pair, version = named.pair_id, str(named.version)
        if named.unfit:
            by_hand = Named(pair, version, named.unfit)
            if self._may_try(by_hand):
                error = RefusedChampionError(
                    f"the alias was moved to it by hand, and it {named.unfit}: promote another, or "
                    "this one by force and say why"
                )
                await self._failed(by_hand, error, Again.ASKED)
            return
        self._reload = False  # once for each time that it was asked for, whatever comes of it
        wanted = Named(pair, version, "registry")
        if not self._may_try(wanted) or await self._harmed(wanted):
            return
        begun = self._clock()
        fetched, checked = False, False  # how far it came
        try:
            if not self._refusals.known(wanted):  # a try that is repeated for weeks is one line
                await self._notes.write(steps.FOUND, pair, version)
            await self._fetch(named)
            fetched = True
            await self._notes.write(steps.DOWNLOADED, pair, version)
            found = await self._switching.check(pair, version)
            checked = True
            await self._switching.take(found, back=self._resume)
        except asyncio.CancelledError:
            self._notes.asked_to_end()
            raise
        except InterruptedDownloadError as error:
            log.info("the download of pair %s is given up: %s", pair, error)
            await self._notes.jot(steps.FAILED, pair, version, str(error))
            self._hurried.set()  # to look again at once
            return
        except Exception as error:  # whatever it was, what is served goes on
            again = _again(error, fetched=fetched)
            if checked and self._switching.interrupted:
                again = Again.ASKED  # nothing was served for its sake: once is enough
            await self._failed(wanted, error, again)
            return
        self._refusals.forget()
        self.service.metrics.swaps["switched"] += 1
        self._remember("swapped", pair, version, seconds=self._clock() - begun)
        log.info("pair %s (version %s) serves", pair, version)
        with suppress(OSError):  # old files are in nobody's way
            await in_passing_thread(partial(self.pairs.prune, self.journal.switched()[:PAIRS_KEPT]))

    async def _fetch(self, named: RemotePair) -> None:
        """Download a pair, looking at the registry meanwhile. Raises as that does, and
        InterruptedDownloadError."""
        self._asked = False
        await fetch(
            partial(self._download, named, self.pairs.folder),
            unwanted=partial(self._unwanted, named),
            hurried=self._hurried,
            seconds=self.service.settings.poll_seconds,
        )

    async def _unwanted(self, named: RemotePair) -> str | None:
        """Why a pair need not be downloaded any more; None: it is still wanted."""
        if self._asked:
            return "somebody has asked for a swap"
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                now = await in_passing_thread(self._champion)
        except Exception:  # the next look says what is wrong
            return None
        return None if now is not None and now.pair_id == named.pair_id else "it is not champion"

    def _may_try(self, named: Named) -> bool:
        return self._refusals.may_try(named, idle=self.service.worker.current is None)

    async def _resume(self, host: Host | None = None) -> None:
        """Serve the last good pair from the disk, also where nothing can be written there."""
        good = self.journal.last_good
        if good is None:
            return
        pair, version = good.pair, good.version
        copy = Named(pair, version, "disk")
        if not self._may_try(copy) or await self._harmed(copy):
            return
        try:
            await self._notes.jot(steps.DOWNLOADED, pair, version)
            loaded = await self._switching.load(await self._switching.check(pair, version), host)
            await self._notes.jot(steps.LOADED, pair, version)
            await self.service.warm(loaded)
            await self._notes.jot(steps.PROBED, pair, version)
            await self._notes.jot(steps.RESUMED, pair, version)
        except asyncio.CancelledError:
            self._notes.asked_to_end()
            raise
        except Exception as error:  # a broken copy must not end the follower
            await self._failed(copy, error, _again(error, fetched=True))
            return
        self.service.worker.switch(loaded)
        self._remember("swapped", pair, version, why="from the local copy")
        log.info("pair %s (version %s) serves from its local copy", pair, version)

    async def _harmed(self, named: Named) -> bool:
        """Whether it has ended processes that tried it, so that it is left alone."""
        harm = self.journal.harm(named.pair, named.version)
        if not self._wary or self._refusals.known(named) or harm < MOST_HARM:
            return False
        error = RefusedChampionError(
            f"the process has ended or hung {harm} times while this pair was loaded or tried: "
            "ask for a swap to try it once more"
        )
        await self._failed(named, error, Again.ASKED, longest=True)
        return True

    async def _failed(
        self, named: Named, error: Exception, again: Again, *, longest: bool = False
    ) -> None:
        """Keep what is served; tell it once; wait before the next try, or for somebody to ask."""
        pair, version, why = named.pair, named.version, f"{type(error).__name__}: {error}"
        news = self._refusals.refuse(named, again, longest=longest)
        if news or self.journal.unfinished is not None:
            await self._notes.jot(steps.FAILED, pair, version, why)
        if not news:
            return
        self.service.metrics.swaps["failed"] += 1
        step = self._remember("failed", pair, version, why=why)
        log.error("pair %s (version %s) is refused, %s: %s", pair, version, self._serving(), why)
        if self._outbox is not None:
            put = partial(self._outbox.put, _alarm(pair, version, why, step["at"]))
            try:
                await in_passing_thread(put)
            except OSError as full:
                log.error("the alarm could not be written down: %s", full)

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


def _again(error: Exception, *, fetched: bool) -> Again:
    """Whether trying the same pair again would end the same."""
    content = isinstance(error, ValueError | DigestError)
    if not fetched:  # what was read may be a proxy's page
        return Again.LATER if content else Again.SOON
    return Again.ASKED if content or isinstance(error, ProbeError) else Again.SOON


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
