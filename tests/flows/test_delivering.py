"""What is to be told of alarms goes out by every channel, each by itself."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from configuration.notices import Notices
from configuration.settings import Settings
from flows.delivering import FAILURES_A_LOOK, KEPT_SECONDS, deliver_notices
from monitoring.notices import Notice, Phase
from monitoring.outbox import Outbox
from monitoring.webhook import Outcome, Sent
from speculation.records import Alarm

LOG = logging.getLogger("test")


def alarm(number: int = 1, at: float = 100.0) -> Alarm:
    return Alarm(f"a-{number}", "p-1", "d" * 64, "drift", "it fell", at, 118, action="retrain")


class Line:
    """A home with an outbox, and what went out of it."""

    def __init__(self, home: Path, *, webhook: str = "https://hooks.example.com/x") -> None:
        self.settings = Settings(home=home, notices=Notices(webhook=webhook))
        self.outbox = Outbox(home / "monitoring" / "outbox")
        self.posts: list[dict[str, Any]] = []
        self.events: list[tuple[str, str]] = []
        self.answer = Sent(Outcome.DONE)
        self.away = False

    def send(self, url: str, body: bytes, **how: Any) -> Sent:
        self.posts.append({"url": url, "body": json.loads(body), **how})
        return self.answer

    def emit(self, *, event: str, id: Any, **more: Any) -> None:
        if self.away:
            raise ConnectionError("nobody there")
        self.events.append((event, str(id)))

    def look(self, now: float) -> dict[str, int]:
        return deliver_notices(self.settings, logger=LOG, now=now, send=self.send, emit=self.emit)


def test_a_notice_goes_out_once_by_each_channel(tmp_path: Path) -> None:
    line = Line(tmp_path)
    line.outbox.put(alarm())
    line.outbox.responded("a-1", action="retrain", done="a retrain begins", at=101.0)
    assert line.look(102.0) == {"event": 1, "webhook": 1}
    assert line.look(103.0) == {"event": 0, "webhook": 0}
    assert line.events[0][0] == "paceline.alarm.drift"
    (told,) = line.posts
    assert (told["url"], told["id"], told["at"]) == ("https://hooks.example.com/x", "a-1", 102.0)
    assert told["body"]["data"]["done"] == "a retrain begins"
    assert line.outbox.pending() == [alarm()]  # telling is not responding


def test_what_is_over_is_an_event_of_its_own(tmp_path: Path) -> None:
    line = Line(tmp_path, webhook="")
    line.outbox.put(alarm())
    line.look(110.0)
    line.outbox.put(Notice("a-1.resolved", Phase.RESOLVED, 500.0, alarm()))
    line.look(510.0)
    assert [event for event, _ in line.events] == [
        "paceline.alarm.drift",
        "paceline.alarm.drift.resolved",
    ]
    assert len({id for _, id in line.events}) == 2
    assert line.posts == []


def test_a_channel_that_fails_stops_no_other_and_is_tried_again(tmp_path: Path) -> None:
    line = Line(tmp_path)
    line.outbox.put(alarm())
    line.answer = Sent(Outcome.AGAIN, "it answered 503")
    assert line.look(100.0) == {"event": 1, "webhook": 0}
    assert line.look(110.0) == {"event": 0, "webhook": 0}
    assert len(line.posts) == 1  # not before its time
    line.answer = Sent(Outcome.DONE)
    assert line.look(131.0) == {"event": 0, "webhook": 1}


def test_prefect_that_is_away_keeps_no_webhook_from_going_out(tmp_path: Path) -> None:
    line = Line(tmp_path)
    line.outbox.put(alarm())
    line.away = True
    assert line.look(100.0) == {"event": 0, "webhook": 1}
    line.away = False
    assert line.look(131.0) == {"event": 1, "webhook": 0}


def test_a_receiver_that_fails_is_left_alone_until_the_next_look(tmp_path: Path) -> None:
    line = Line(tmp_path)
    for number in range(10):
        line.outbox.put(alarm(number))
    line.answer = Sent(Outcome.AGAIN, "ReadTimeout")
    line.look(100.0)
    assert len(line.posts) == FAILURES_A_LOOK


def test_a_receiver_that_is_gone_is_not_asked_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    line = Line(tmp_path)
    line.outbox.put(alarm())
    line.answer = Sent(Outcome.NEVER, "it answered 410")
    line.look(100.0)
    line.look(200.0)
    assert len(line.posts) == 1
    assert "the receiver of notices is gone (it answered 410)" in caplog.text


def test_old_news_is_cleared_away(tmp_path: Path) -> None:
    line = Line(tmp_path)
    line.outbox.put(alarm())
    line.outbox.delivered("a-1")
    line.look(100.0)
    line.look(101.0 + KEPT_SECONDS)
    assert list((tmp_path / "monitoring" / "outbox").iterdir()) == []


def test_a_notification_block_is_told_of_alarms_too_once(tmp_path: Path) -> None:
    line = Line(tmp_path, webhook="")
    line.settings = Settings(home=tmp_path, notices=Notices(block="slack-webhook/ops"))
    line.outbox.put(alarm())
    for _ in range(2):
        line.look(102.0)
    (waits,) = (tmp_path / "flows" / "notices").iterdir()
    told = json.loads(waits.read_text())
    assert (told["title"], told["text"]) == ("drift raised: pair p-1", "it fell")
    assert list(told["due"]) == ["block"]
