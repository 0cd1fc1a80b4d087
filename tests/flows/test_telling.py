"""What the loop did reaches people once by each channel; one that fails stops no other."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from configuration.notices import Notices
from configuration.settings import Settings
from flows import telling
from flows.telling import deliver, tell
from monitoring.webhook import Outcome, Sent

LOGGER = logging.getLogger("told")
NOTICES = Notices(block="slack-webhook/ops", webhook="https://example.com/hook")


class Away(Exception):
    """What somebody's block raises."""


class Told:
    """A block, a webhook and Prefect's events, each of which may be away."""

    def __init__(self) -> None:
        self.away: set[str] = set()
        self.blocks: list[tuple[str, str | None]] = []
        self.posts: list[tuple[str, dict[str, Any]]] = []
        self.events: list[dict[str, Any]] = []

    def load(self, name: str) -> Told:
        assert name == NOTICES.block
        return self

    def notify(self, body: str, subject: str | None = None) -> None:
        if "block" in self.away:
            raise Away("https://hooks.example.com/a-secret")
        self.blocks.append((body, subject))

    def send(self, url: str, body: bytes, *, id: str, **_: Any) -> Sent:
        if "webhook" in self.away:
            return Sent(Outcome.AGAIN, "it answered 503")
        self.posts.append((id, json.loads(body)))
        return Sent(Outcome.DONE)

    def emit(self, **given: Any) -> None:
        self.events.append(given)

    def deliver(self, home: Path, *, now: float | None = None, notices: Notices = NOTICES) -> Any:
        found = Settings(home=home, notices=notices)
        ways: dict[str, Any] = {"send": self.send, "load": self.load, "emit": self.emit}
        return deliver(found, logger=LOGGER, now=now, **ways)


def test_a_notice_goes_out_once_by_each_channel_however_often_it_is_told(tmp_path: Path) -> None:
    to = Told()
    assert tell(tmp_path, "settled:1", "line: v2 is champion", "It passed.", pairing="line")
    assert not tell(tmp_path, "settled:1", "line: v2 is champion", "It passed.", pairing="line")
    assert to.deliver(tmp_path) == {"event": 1, "block": 1, "webhook": 1}
    assert to.deliver(tmp_path) == {"event": 0, "block": 0, "webhook": 0}
    assert to.blocks == [("It passed.", "line: v2 is champion")]
    ((_, posted),) = to.posts
    assert posted["type"] == "paceline.told"
    assert posted["data"]["title"] == "line: v2 is champion"
    assert to.events[0]["resource"] == {"prefect.resource.id": "paceline.pairing.line"}
    assert not tell(tmp_path, "settled:1", "again", "It passed.", pairing="line"), "told already"


def test_a_channel_that_is_away_is_tried_again_later_each_time_and_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    to = Told()
    to.away = {"block"}
    tell(tmp_path, "k", "title", "text", pairing="line")
    now = json.loads(next((tmp_path / "flows" / "notices").iterdir()).read_text())["at"]
    assert to.deliver(tmp_path, now=now) == {"event": 1, "block": 0, "webhook": 1}
    assert "k could not be told by block: Away" in caplog.text
    assert "a-secret" not in caplog.text
    caplog.clear()
    to.deliver(tmp_path, now=now + 29)
    assert not caplog.text, "not before its time"
    to.deliver(tmp_path, now=now + 31)
    assert "by block" in caplog.text
    caplog.clear()
    to.deliver(tmp_path, now=now + 89)
    assert not caplog.text, "twice as long"
    to.away = set()
    assert to.deliver(tmp_path, now=now + 92)["block"] == 1
    assert len(to.posts) == 1, "the webhook had it already"


def test_what_is_a_day_old_is_no_news_and_what_is_not_configured_waits_for_nothing(
    tmp_path: Path,
) -> None:
    to = Told()
    to.away = {"webhook"}
    tell(tmp_path, "k", "title", "text", pairing="line")
    assert to.deliver(tmp_path, notices=Notices(webhook=NOTICES.webhook)) == {
        **{"event": 1, "webhook": 0}
    }
    stored = next((tmp_path / "flows" / "notices").iterdir())
    at = json.loads(stored.read_text())["at"]
    to.away = set()
    assert to.deliver(tmp_path, now=at + telling.GIVE_UP_SECONDS + 1)["webhook"] == 0
    assert json.loads(stored.read_text())["due"] == {}
    to.deliver(tmp_path, now=at + telling.KEPT_SECONDS + 1)
    assert not stored.exists()


def test_a_file_of_somebody_else_stops_no_notice(tmp_path: Path) -> None:
    to = Told()
    tell(tmp_path, "k", "title", "text", pairing="line")
    (tmp_path / "flows" / "notices" / "torn.json").write_text('{"key": ')
    assert to.deliver(tmp_path)["webhook"] == 1
