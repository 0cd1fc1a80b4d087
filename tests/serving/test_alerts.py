"""Alertmanager's webhook: a team's own alert is written down as an alarm of what is served."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from monitoring.outbox import Outbox
from serving.alerts import MOST_BYTES, PATH
from serving.settings import ServeSettings
from tests.monitoring.test_alertmanager import ALERT, body
from tests.serving.served import Served, serving

TOKEN = "alert-token-of-tests-1"
UNLABELLED = ALERT | {"labels": {"alertname": "SlowAnswers"}}


@pytest.fixture(scope="module")
def alerted(target_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    settings = ServeSettings(
        home=tmp_path_factory.mktemp("alerted"),
        target=target_folder,
        admin_keys=("boss-of-tests-12345",),
        alert_token=TOKEN,
    )
    with serving(settings) as served:
        yield served


def posted(served: Served, content: bytes, token: str | None = TOKEN) -> httpx.Response:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    return served.client.post(PATH, content=content, headers=headers)


def outbox(served: Served) -> Outbox:
    return Outbox(served.running.settings.home / "monitoring" / "outbox")


@pytest.mark.parametrize("token", [None, "x", "alert-token-of-tests-2", "boss-of-tests-12345"])
def test_without_its_token_nothing_is_taken(alerted: Served, token: str | None) -> None:
    answer = posted(alerted, body(UNLABELLED), token)
    assert answer.status_code == 401
    assert outbox(alerted).alarms() == []


def test_an_alert_is_an_alarm_once_and_its_end_is_its_end(alerted: Served) -> None:
    pair = alerted.loaded.pair
    first, again = (posted(alerted, body(UNLABELLED)) for _ in range(2))
    assert (first.status_code, first.json()) == (202, {"taken": 1, "new": 1, "passed_over": []})
    assert again.json()["new"] == 0
    (alarm,) = outbox(alerted).pending()
    assert (alarm.pair, alarm.cause, alarm.action) == (pair, "external", "retrain")
    assert alarm.release == alerted.loaded.host.release.digest
    over = posted(alerted, body(UNLABELLED | {"status": "resolved"}))
    assert over.json()["new"] == 1
    assert outbox(alerted).pending() == []


def test_what_is_of_another_pairing_is_passed_over(alerted: Served) -> None:
    other = ALERT | {"labels": {"alertname": "x", "pairing": "somebody-else-s"}}
    told: dict[str, Any] = posted(alerted, body(other)).json()
    assert told["taken"] == 0
    assert "not served here" in told["passed_over"][0]


@pytest.mark.parametrize(
    ("content", "status"),
    [(b"{}", 400), (b"<html>", 400), (json.dumps([1]).encode(), 400), (b" " * MOST_BYTES * 2, 413)],
    ids=["empty", "html", "list", "long"],
)
def test_what_alertmanager_never_posts_is_refused_and_not_asked_for_again(
    alerted: Served, content: bytes, status: int
) -> None:
    assert posted(alerted, content).status_code == status


def test_a_disk_that_takes_nothing_is_said_so_that_it_is_tried_again(
    alerted: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(box: Outbox, told: object) -> bool:
        raise OSError(28, "No space left on device")

    later = UNLABELLED | {"startsAt": "2026-11-30T18:00:00Z"}
    monkeypatch.setattr(Outbox, "put", full)
    assert posted(alerted, body(later)).status_code == 503
    monkeypatch.undo()
    assert posted(alerted, body(later)).json()["new"] == 1


def test_without_a_token_there_is_no_such_route(server: Served) -> None:
    assert server.client.post(PATH, content=body(ALERT)).status_code == 404
