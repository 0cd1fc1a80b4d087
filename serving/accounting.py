"""Counts every request exactly once, when it ends, whether or not its client listens.

A request is what a client sent: it may ask for several answers (`n`, or several prompts), each of
which is a line of the exchange log and has counts, and it ends with the last of them. What metrics
and the log say is decided here, once, for both.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from monitoring.exchanges import ExchangeLog
from serving.loading import Loaded
from serving.metrics import Metrics
from serving.series import Labels
from serving.tickets import Ticket
from speculation.records import Exchange
from speculation.sequence import Event

log = logging.getLogger("paceline.serving")

OUTCOMES = ("stop", "length", "cancelled", "deadline", "error")  # a request's is its answers' worst


@dataclass
class _Ended:
    """A request's answers that have ended."""

    outcomes: list[str] = field(default_factory=list)
    first_token_seconds: list[float] = field(default_factory=list)
    queue_seconds: list[float] = field(default_factory=list)


class Accounting:
    """The books of one server. In the event loop's thread only."""

    def __init__(
        self,
        metrics: Metrics,
        exchanges: ExchangeLog,
        *,
        capture: bool,  # prompt and completion ids too
        clock: Callable[[], float],
        engine: str = "",  # name and version
        running: Callable[[], int] = lambda: 0,  # other requests that have not ended
    ) -> None:
        self.unlogged = 0  # exchanges that the log could not take
        self._metrics, self._exchanges = metrics, exchanges
        self._capture, self._clock = capture, clock
        self._engine, self._running = engine, running
        # By the queue of events that the answers to one request share.
        self._ended: WeakKeyDictionary[asyncio.Queue[tuple[int, Event]], _Ended] = (
            WeakKeyDictionary()
        )

    def refused(self, loaded: Loaded | None, outcome: str) -> None:
        """A request that was not admitted, under what is served now."""
        arm = None if loaded is None else loaded.default
        labels = Labels() if arm is None else Labels(arm.pair, arm.name)
        self._metrics.request(labels, outcome)

    def ended(self, ticket: Ticket, last: Event) -> None:
        """An answer has ended."""
        if not ticket.counted:
            return
        assert last.counts is not None
        arm, queue_seconds = ticket.arm, ticket.waiting_seconds + last.queue_seconds
        labels = Labels(arm.pair, arm.name, ticket.request.adapter or "")
        outcome = ticket.outcome(last)
        self._metrics.answer(labels, last.counts)
        self._request(ticket, labels, outcome, queue_seconds)
        capture = self._capture
        exchange = Exchange(
            id=ticket.request.id,
            pair=arm.pair,
            release=ticket.release,
            drafter=arm.name,
            draft_len=ticket.draft_len,
            started=ticket.started,
            prompt_tokens=len(ticket.request.prompt_ids),
            adapter=ticket.request.adapter,
            adaptive=ticket.adaptive,
            engine=self._engine,
            temperature=ticket.request.sampling.temperature,
            pace=ticket.pace,
            running=self._running() + 1,
            prompt_tokens_cached=last.cached,
            counts=last.counts,
            queue_seconds=queue_seconds,
            prefill_seconds=last.prefill_seconds,
            decode_seconds=last.decode_seconds,
            outcome=outcome,
            prompt_ids=ticket.request.prompt_ids if capture else None,
            completion_ids=tuple(ticket.emitted) if capture else None,
        )
        self._log(exchange)

    def _request(self, ticket: Ticket, labels: Labels, outcome: str, queue_seconds: float) -> None:
        """Count the request that the ticket's answer is to, if no other answer is still due."""
        ended = self._ended.setdefault(ticket.events, _Ended())
        ended.outcomes.append(outcome)
        ended.queue_seconds.append(queue_seconds)
        if ticket.first_token_seconds is not None:
            ended.first_token_seconds.append(ticket.first_token_seconds)
        if len(ended.outcomes) < ticket.answers:
            return
        del self._ended[ticket.events]
        self._metrics.request(labels, max(ended.outcomes, key=OUTCOMES.index))
        self._metrics.times(
            labels,
            latency_seconds=self._clock() - ticket.arrived,
            first_token_seconds=min(ended.first_token_seconds, default=None),
            queue_seconds=min(ended.queue_seconds),
        )

    def _log(self, exchange: Exchange) -> None:
        """A full disk costs log lines, never an answer; it is said once until it works again."""
        folder = self._exchanges.folder
        try:
            self._exchanges.append(exchange)
        except OSError as error:
            self.unlogged += 1
            if self.unlogged == 1:
                log.error("the exchange log in %s takes nothing: %s", folder, error)
        else:
            if self.unlogged:
                log.warning("the exchange log works again, %d lines are missing", self.unlogged)
            self.unlogged = 0
