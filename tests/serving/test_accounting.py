"""A request is counted once, however many answers it asked for; each of these has its line."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from monitoring.exchanges import ExchangeLog, read_exchanges
from serving.accounting import OUTCOMES, Accounting
from serving.metrics import Metrics
from serving.tickets import Ticket
from speculation.records import Counts
from speculation.sampling import Sampling
from speculation.seats import State
from speculation.sequence import Event, Request
from tests.serving.fakes import FakePair


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        (["stop"], "stop"),
        (["length", "stop", "stop"], "length"),
        (["error", "stop", "cancelled"], "error"),
        (["stop", "cancelled"], "cancelled"),
    ],
)
def test_a_request_is_counted_when_its_last_answer_ends_by_the_worst_of_them(
    tmp_path: Path, answers: list[str], outcome: str
) -> None:
    metrics, log = Metrics(CollectorRegistry()), ExchangeLog(tmp_path)
    books = Accounting(metrics, log, capture=False, clock=lambda: 5.0)
    pair = FakePair().loaded

    async def story() -> None:
        events: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        for place, ended in enumerate(answers):
            assert "requests_total{" not in metrics.text().decode()
            request = Request(f"r-{place}", (9,), 4)
            ticket = Ticket(request, pair, 0.0, 2.0, events, place, len(answers))
            ticket.first_token_seconds = 1.0 + place
            last = Event(request.id, (), (), ended, Counts(emitted=2), queue_seconds=place + 0.5)
            books.ended(ticket, last)

    asyncio.run(story())
    log.close()
    page = metrics.text().decode().splitlines()
    labels = 'adapter="",drafter="head"'
    counted = [line for line in page if line.startswith("paceline_requests_total{")]
    assert counted == [f'paceline_requests_total{{{labels},outcome="{outcome}",pair="pair"}} 1.0']
    for name, value in (
        ("emitted_tokens_total", 2.0 * len(answers)),
        ("request_latency_seconds_count", 1.0),
        ("request_latency_seconds_sum", 3.0),
        ("first_token_seconds_sum", 1.0),
        ("queue_wait_seconds_sum", 0.5),
    ):
        assert f'paceline_{name}{{{labels},pair="pair"}} {value}' in page
    assert [exchange.outcome for exchange in read_exchanges(tmp_path)] == answers
    assert {*answers} <= {*OUTCOMES}


def test_what_a_monitor_needs_of_a_request_is_in_its_line(tmp_path: Path) -> None:
    """Engine, temperature, load, and the state of the pace that chose its K."""
    log = ExchangeLog(tmp_path)
    books = Accounting(
        Metrics(CollectorRegistry()),
        log,
        capture=False,
        clock=lambda: 5.0,
        engine="builtin 1.2",
        running=lambda: 2,
    )
    pair = FakePair(adaptive=True)
    pair.start()
    pair.engine.paces = {"head": SimpleNamespace(state=State.OFF_BY_REJECTION)}

    async def story() -> None:
        for number, draft_len in enumerate((None, 4)):
            request = Request(f"r-{number}", (9,), 4, Sampling(temperature=0.7))
            ticket = Ticket(replace(request, draft_len=draft_len), pair.loaded, 0.0, 2.0)
            ticket.end()
            books.ended(ticket, Event(request.id, (), (), "stop", Counts(emitted=2)))

    asyncio.run(story())
    log.close()
    adaptive, fixed = read_exchanges(tmp_path)
    assert (adaptive.engine, adaptive.temperature, adaptive.running) == ("builtin 1.2", 0.7, 3)
    assert (adaptive.pace, fixed.pace) == ("off_by_rejection", None)
