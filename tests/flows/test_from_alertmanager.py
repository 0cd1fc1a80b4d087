"""A team's alert on its own metrics leads to what an alarm of the monitor's would."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from configuration.settings import Settings
from flows import alarms as module
from flows.alarms import deliver_alarms
from monitoring.alertmanager import read
from monitoring.outbox import Outbox
from tests.flows.test_alarms import Prefect
from tests.monitoring.test_alertmanager import ALERT, CHAMPIONS, body


def test_an_alert_that_is_repeated_is_answered_once_and_one_that_is_over_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefect, outbox = Prefect(), Outbox(tmp_path / "monitoring" / "outbox")
    for name in ("start_once", "under_way", "last_run"):
        monkeypatch.setattr(module, name, getattr(prefect, name))
    monkeypatch.setattr(module, "get_run_logger", lambda: logging.getLogger("alarms"))
    another = ALERT | {"fingerprint": "another", "labels": {"alertname": "Over"}}
    for _ in range(3):  # as Alertmanager does until it is over
        posted = body(ALERT, another, another | {"status": "resolved"})
        for notice in read(posted, champions=CHAMPIONS, at=time.time()).notices:
            outbox.put(notice)
        deliver_alarms(Settings(home=tmp_path))
    ((key, parameters),) = prefect.started.items()
    alarm = parameters["alarm"]
    assert (key, alarm["cause"], alarm["pair"]) == (f"respond:{alarm['id']}", "external", "p-1")
    assert (parameters["count"], alarm["action"]) == (1, "retrain")
