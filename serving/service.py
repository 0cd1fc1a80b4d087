"""One server's state, and what can be done to it: take a pair, admit a request, drain.

Sits between the routes, which know HTTP, and the worker, which knows engines. Every request that
was admitted is counted and logged exactly once, when it ends, whether or not its client still
listens.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from monitoring.exchanges import ExchangeLog
from serving.bodies import Ask
from serving.fields import BadRequest
from serving.loading import Host, Loaded, static_arm, trial_arms
from serving.metrics import Metrics
from serving.passing import in_passing_thread
from serving.series import Labels
from serving.settings import ServeSettings
from serving.text import TemplateError, Text
from serving.tickets import QueueFullError, Ticket
from serving.worker import Worker
from speculation.records import Exchange
from speculation.requests import RequestError, check
from speculation.sampling import Sampling
from speculation.sequence import Event, Request

log = logging.getLogger("paceline.serving")
# How a client writes what the engine has another name for.
FIELDS = {
    "allowed": "allowed_token_ids",
    "banned": "banned_token_ids",
    "prompt_ids": "prompt",
}

PROBE = "def add(a, b):\n    return a + b\n"
PROBE_TOKENS = 12  # a few rounds at any K
LOADING_RETRY_SECONDS = 5


class UnavailableError(Exception):
    """The server takes no requests now; come back in `retry_seconds`."""

    def __init__(self, why: str, retry_seconds: int) -> None:
        super().__init__(why)
        self.retry_seconds = retry_seconds


class ProbeError(RuntimeError):
    """A pair that was loaded and then failed to answer."""


class Service:
    """Made inside the event loop that it serves in."""

    def __init__(self, settings: ServeSettings, metrics: Metrics, exchanges: ExchangeLog) -> None:
        self.settings, self.metrics, self.exchanges = settings, metrics, exchanges
        self.worker = Worker(queue_tokens=settings.queue_tokens, ended=self._ended)
        self.draining = False
        self.ending = False  # draining is for good: the process was told to end
        self.unlogged = 0  # exchanges that the log could not take
        self.hurry: Callable[[], None] | None = None  # of a following server
        self._following: Callable[[], dict[str, Any]] | None = None
        # Long prompts take a while to tokenise: beside the event loop, one at a time.
        self._tokenising = ThreadPoolExecutor(1, thread_name_prefix="paceline-tokenise")

    async def load(self) -> None:
        """Load a static or a trial server's target and drafts, and serve them.

        Raises ValueError subclasses (FolderError, ModelFolderError, DraftError, …) for what the
        settings name wrongly, ProbeError for a pair that does not answer.
        """
        target, settings = self.settings.target, self.settings
        assert target is not None

        def prepare() -> Loaded:
            host = Host.load(target, settings)
            if settings.trial:
                return Loaded.prepare(host, trial_arms(host, settings.arms), settings)
            arm = static_arm(host, settings.draft)
            return Loaded.prepare(host, {arm.name: arm}, settings)

        loaded = await in_passing_thread(prepare)
        await self.warm(loaded)
        self.worker.switch(loaded)

    async def warm(self, loaded: Loaded) -> None:
        """Start `loaded` beside what is served and let it answer. Raises ProbeError.

        It runs through the worker like any request, so that what is being served goes on between.
        """
        await self.worker.open(loaded)
        try:
            for name, arm in loaded.arms.items():
                last = await self._probe(loaded, name)
                assert last.counts is not None
                mute = arm.kind == "head" and loaded.draft_len > 0 and not last.counts.drafted
                if last.outcome != "length" or mute:
                    what = "drafted nothing" if mute else f"ended with {last.outcome!r}"
                    raise ProbeError(f"pair {arm.pair} ({arm.kind}) {what} when it was tried")
        except BaseException:  # cancelled as well: what was opened has to be closed
            await self.worker.close(loaded)
            raise

    async def _probe(self, loaded: Loaded, arm: str) -> Event:
        prompt = loaded.text.encode(PROBE)[: loaded.max_len - 1] or (0,)
        tokens = min(PROBE_TOKENS, loaded.max_len - len(prompt))
        request = Request(f"probe-{secrets.token_hex(8)}", prompt, tokens, drafter=arm)
        ticket = self.worker.submit(request, loaded, counted=False)
        while (event := await self.worker.event(ticket)).outcome is None:
            pass
        return event

    def follow(self, *, hurry: Callable[[], None], describe: Callable[[], dict[str, Any]]) -> None:
        """A follower says how it is asked to look, and what it has to tell."""
        self.hurry, self._following = hurry, describe

    def describe(self) -> dict[str, Any]:
        """What is served, for the admin side and for monitors."""
        loaded, settings = self.worker.current, self.settings
        told: dict[str, Any] = {
            "engine": "builtin",
            "model": settings.model,
            "mode": "following" if settings.pairing else "trial" if settings.trial else "static",
            "ready": self.unready() is None,
            "why": self.unready(),
            "running": len(self.worker.tickets),
            "swaps": [],
        }
        if loaded is not None:
            told |= {
                "pair": loaded.pair,
                "version": loaded.version,
                "verified": loaded.default.verified,
                "release": loaded.host.release.digest,
                "target": str(loaded.host.folder),
                "drafter": loaded.default.name,
                "draft_len": loaded.draft_len,
                "max_slots": loaded.slots,
                "max_context": loaded.max_len,
                "arms": {
                    name: {"pair": arm.pair, "kind": arm.kind, "draft": str(arm.draft)}
                    for name, arm in loaded.arms.items()
                },
            }
        return told if self._following is None else told | self._following()

    def unready(self) -> str | None:
        """Why the server takes no requests now; None when it does."""
        if self.worker.dead is not None:
            return f"the engine has failed: {self.worker.dead}"
        if self.draining:
            return "the server is draining"
        if self.worker.current is None:
            return "no pair is loaded yet"
        return None

    async def admit(self, ask: Ask) -> Ticket:
        """Queue a request. Raises UnavailableError, BadRequest, QueueFullError."""
        while True:
            if (why := self.unready()) is not None:
                retry = int(self.settings.grace_seconds) if self.draining else LOADING_RETRY_SECONDS
                raise UnavailableError(why, max(retry, 1))
            loaded = self.worker.current
            assert loaded is not None
            self._check(ask, loaded)
            prompt = await asyncio.get_running_loop().run_in_executor(
                self._tokenising, _encode, ask, loaded.text
            )
            # The pair may have been swapped meanwhile, and with it the tokens.
            if loaded is self.worker.current and not self.draining:
                break
        request = self._request(ask, loaded, prompt)
        try:
            return self.worker.submit(request, loaded)
        except QueueFullError:
            self.refused("rejected")
            raise

    def refused(self, outcome: str) -> None:
        """Count a request that was not admitted, under what is served now."""
        loaded = self.worker.current
        labels = Labels() if loaded is None else Labels(loaded.pair, loaded.default.name)
        self.metrics.request(labels, outcome)

    def _check(self, ask: Ask, loaded: Loaded) -> None:
        if ask.model is not None and ask.model != self.settings.model:
            raise BadRequest(
                f"model {ascii(ask.model[:80])} is not served here: ask for "
                f"{self.settings.model!r}, or leave model out",
                "model",
                status=404,
            )
        if ask.trial_field and not self.settings.trial:
            raise BadRequest("paceline: only a server started with --trial takes it", "paceline")
        if ask.arm is not None and ask.arm not in loaded.arms:
            raise BadRequest(
                f"paceline.arm: wanted one of {', '.join(loaded.arms)}", "paceline.arm"
            )

    def _request(self, ask: Ask, loaded: Loaded, prompt: tuple[int, ...]) -> Request:
        if not prompt:
            raise BadRequest("the prompt has no tokens", "messages" if ask.chat else "prompt")
        if max(prompt) >= min(len(loaded.text), loaded.host.target.vocab_size):
            raise BadRequest(f"prompt: token id {max(prompt)} is not in the token table", "prompt")
        room = loaded.max_len - len(prompt)
        wanted = room if ask.max_tokens is None else ask.max_tokens
        if room < 1 or wanted > room:
            raise BadRequest(
                f"{len(prompt)} prompt tokens and max_tokens {ask.max_tokens or 1} exceed the "
                f"context of {loaded.max_len} tokens: shorten one of them",
                "max_tokens" if room >= 1 else ("messages" if ask.chat else "prompt"),
            )
        text = loaded.text
        request = Request(
            id=f"{'chatcmpl' if ask.chat else 'cmpl'}-{secrets.token_hex(12)}",
            prompt_ids=prompt,
            max_tokens=wanted,
            sampling=_sampling(ask, text),
            stop_ids=text.stop_ids | ask.stop_ids,
            drafter=ask.arm,
            draft_len=ask.draft_len,
            logprobs=max(ask.top_logprobs, 1) if ask.logprobs else 0,
            ends=text.completion(ask.stops, ask.stop_ids).ends if ask.stops else None,
        )
        try:
            check(request, loaded.limits)
        except RequestError as error:
            named = FIELDS.get(error.field, error.field)
            raise BadRequest(f"{named}: {error}", named) from error
        return request

    def _ended(self, ticket: Ticket, last: Event) -> None:
        if not ticket.counted:
            return
        assert last.counts is not None
        assert last.outcome is not None
        arm, queue_seconds = ticket.arm, ticket.waiting_seconds + last.queue_seconds
        labels = Labels(arm.pair, arm.name, ticket.request.adapter or "")
        self.metrics.request(labels, ticket.outcome(last))
        self.metrics.exchange(
            labels,
            last.counts,
            latency_seconds=self.worker.age_seconds(ticket),
            first_token_seconds=ticket.first_token_seconds,
            queue_seconds=queue_seconds,
        )
        capture = self.settings.capture
        exchange = Exchange(
            id=ticket.request.id,
            pair=arm.pair,
            release=ticket.loaded.host.release.digest,
            drafter=arm.name,
            draft_len=ticket.draft_len,
            started=ticket.started,
            prompt_tokens=len(ticket.request.prompt_ids),
            adapter=ticket.request.adapter,
            prompt_tokens_cached=last.cached,
            counts=last.counts,
            queue_seconds=queue_seconds,
            prefill_seconds=last.prefill_seconds,
            decode_seconds=last.decode_seconds,
            outcome=last.outcome,
            prompt_ids=ticket.request.prompt_ids if capture else None,
            completion_ids=tuple(ticket.emitted) if capture else None,
        )
        self._log(lambda: self.exchanges.append(exchange))

    def _log(self, write: Callable[[], None]) -> None:
        """A full disk costs log lines, never an answer; it is said once until it works again."""
        try:
            write()
        except OSError as error:
            self.unlogged += 1
            if self.unlogged == 1:
                log.error("the exchange log in %s takes nothing: %s", self.exchanges.folder, error)
        else:
            if self.unlogged:
                log.warning("the exchange log works again, %d lines are missing", self.unlogged)
            self.unlogged = 0

    async def drain(self) -> None:
        """Take no more requests, and wait for those that run, at most the time of grace."""
        self.draining = self.ending = True
        try:
            async with asyncio.timeout(self.settings.grace_seconds):
                await self.worker.drained()
        except TimeoutError:
            log.warning("%d requests did not end in time", len(self.worker.tickets))
            self.worker.cancel_all()
            await self.worker.drained()

    def close(self) -> None:
        """End the threads and the log."""
        self.worker.stop()
        self._tokenising.shutdown(wait=False, cancel_futures=True)
        self.exchanges.close()


def _encode(ask: Ask, text: Text) -> tuple[int, ...]:
    if ask.chat:
        try:
            return text.encode_chat(ask.messages)
        except TemplateError as error:
            raise BadRequest(str(error), "messages") from error
    return text.encode(ask.prompt) if isinstance(ask.prompt, str) else ask.prompt


def _sampling(ask: Ask, text: Text) -> Sampling:
    """What the client said, else what the release says, else OpenAI's defaults."""
    try:
        return Sampling(**{"temperature": 1.0, **text.sampling, **ask.sampling})
    except ValueError as error:  # two parameters that cannot be together
        raise BadRequest(str(error)) from error
