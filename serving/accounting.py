"""Counts and logs every request exactly once, when it ends, whether or not its client listens.

What metrics and the exchange log say of a request is decided here, once, for both.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from monitoring.exchanges import ExchangeLog
from serving.loading import Loaded
from serving.metrics import Metrics
from serving.series import Labels
from serving.tickets import Ticket
from speculation.records import Exchange
from speculation.sequence import Event

log = logging.getLogger("paceline.serving")


class Accounting:
    """The books of one server. In the event loop's thread only."""

    def __init__(
        self,
        metrics: Metrics,
        exchanges: ExchangeLog,
        *,
        capture: bool,  # prompt and completion ids too
        clock: Callable[[], float],
    ) -> None:
        self.unlogged = 0  # exchanges that the log could not take
        self._metrics, self._exchanges = metrics, exchanges
        self._capture, self._clock = capture, clock

    def refused(self, loaded: Loaded | None, outcome: str) -> None:
        """A request that was not admitted, under what is served now."""
        labels = Labels() if loaded is None else Labels(loaded.pair, loaded.default.name)
        self._metrics.request(labels, outcome)

    def ended(self, ticket: Ticket, last: Event) -> None:
        """A request that was admitted."""
        if not ticket.counted:
            return
        assert last.counts is not None
        arm, queue_seconds = ticket.arm, ticket.waiting_seconds + last.queue_seconds
        labels = Labels(arm.pair, arm.name, ticket.request.adapter or "")
        outcome = ticket.outcome(last)
        self._metrics.request(labels, outcome)
        self._metrics.exchange(
            labels,
            last.counts,
            latency_seconds=self._clock() - ticket.arrived,
            first_token_seconds=ticket.first_token_seconds,
            queue_seconds=queue_seconds,
        )
        capture = self._capture
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
            outcome=outcome,
            prompt_ids=ticket.request.prompt_ids if capture else None,
            completion_ids=tuple(ticket.emitted) if capture else None,
        )
        self._log(exchange)

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
