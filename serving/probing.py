"""Tries a pair before it takes requests, and again when it has stopped answering.

A probe runs through the worker like any request, so that what is being served goes on between.
Knows the worker and what an answer must look like; nothing of clients, of where pairs come from or
of what becomes of one that fails.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import weakref
from contextlib import suppress

from serving.lanes import LaneError
from serving.loading import Loaded
from serving.worker import Worker
from speculation.sequence import Event, Request

log = logging.getLogger("paceline.serving")

PROBE = "def add(a, b):\n    return a + b\n"
PROBE_TOKENS = 12  # a few rounds at any K
WEIGHTED = frozenset({"model", "head"})
CLOSE_SECONDS = 1.0  # for the lane of a pair that failed; the engine may hang in it
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 30.0


class ProbeError(RuntimeError):
    """A pair that was loaded and then failed to answer."""


async def warm(worker: Worker, loaded: Loaded, *, seconds: float) -> None:
    """Start `loaded` beside what is served and let each of its own drafts answer.

    Raises ProbeError, also when that takes longer than `seconds`.
    """
    try:
        async with asyncio.timeout(seconds):
            await worker.open(loaded)
            for name, arm in loaded.arms.items():
                if arm is loaded.own or arm.pair != loaded.pair:  # not what any pair could fall to
                    await probe(worker, loaded, name)
    except BaseException as error:  # cancelled as well: what was opened has to be closed
        closing = worker.close(loaded)
        await asyncio.wait({closing}, timeout=CLOSE_SECONDS)
        if isinstance(error, TimeoutError):
            raise ProbeError(f"pair {loaded.pair} did not answer within {seconds:g} s") from None
        raise


async def probe(worker: Worker, loaded: Loaded, name: str) -> None:
    """One answer of one arm. Raises ProbeError."""
    arm = loaded.arms[name]
    last = await _answer(worker, loaded, name)
    assert last.counts is not None
    failed = loaded.faults().get(name, ()) if arm.kind in WEIGHTED else ()
    if last.outcome != "length":
        what = f"ended with {last.outcome!r}"
    elif failed:  # it would be answered all the same, and no faster than without it
        what = f"failed to draft ({failed[-1].kind}: {failed[-1].message})"
    elif arm.kind in WEIGHTED and not last.counts.drafted:
        what = "drafted nothing"
    else:
        return
    raise ProbeError(f"pair {arm.pair} ({arm.kind}) {what} when it was tried")


async def _answer(worker: Worker, loaded: Loaded, name: str) -> Event:
    context = loaded.arms[name].context  # beyond it a draft is not asked
    longest = loaded.max_len if context is None else min(loaded.max_len, context)
    room = max(longest - PROBE_TOKENS, 1)
    prompt = loaded.text.encode(PROBE)[:room] or (0,)
    tokens = min(PROBE_TOKENS, loaded.max_len - len(prompt))
    request = Request(
        f"probe-{secrets.token_hex(8)}",
        prompt,
        tokens,
        drafter=name,
        draft_len=max(loaded.draft_len, 1),  # its pace might find that it does not pay
    )
    group = worker.submit([request], loaded, counted=False)
    try:
        while (event := (await group.next())[1]).outcome is None:
            pass
    finally:
        group.give_up("gone")
    return event


async def heal(worker: Worker, loaded: Loaded, *, seconds: float) -> None:
    """Try a pair that has stopped answering until it answers again, or is replaced."""
    pause, ill = FIRST_PAUSE_SECONDS, weakref.ref(loaded)
    del loaded  # between two tries nothing here keeps it in memory
    while True:
        await asyncio.sleep(pause)
        current = worker.current
        if current is None or current is not ill():
            return
        with suppress(ProbeError, TimeoutError, LaneError):
            async with asyncio.timeout(seconds):
                if await _revived(worker, current):
                    await probe(worker, current, current.default.name)
                    worker.answers(current)
                    log.warning("pair %s answers again", current.pair)
                    return
        del current
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


async def _revived(worker: Worker, loaded: Loaded) -> bool:
    try:
        await worker.revive(loaded)
    except LaneError:
        raise
    except Exception as error:  # whatever kept it from being made again still does
        log.warning("the engine of pair %s is still gone: %s", loaded.pair, type(error).__name__)
        return False
    return True
