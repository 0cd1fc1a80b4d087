"""All alarms of one matter get one answer, and are done with when that answer is."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from configuration.settings import Settings
from flows import alarms as module
from flows.alarms import deliver_alarms, matters
from monitoring.outbox import Outbox
from speculation.records import Alarm


class Prefect:
    """Starts what it is asked to, and ends it when it is told to."""

    def __init__(self) -> None:
        self.words: dict[str, str] = {}
        self.started: dict[str, dict[str, Any]] = {}

    def start_once(self, flow: str, parameters: dict[str, Any], key: str) -> Any:
        word = self.words.setdefault(key, "alive")
        if word == "alive":
            self.started.setdefault(key, parameters)
        return None, word, "no such folder"

    def under_way(self, *flows: str) -> list[SimpleNamespace]:
        alive = [key for key, word in self.words.items() if word == "alive"]
        return [SimpleNamespace(parameters=self.started[key]) for key in alive]

    def last_run(self, key: str) -> SimpleNamespace:
        return SimpleNamespace(parameters=self.started[key])


@pytest.fixture
def prefect(monkeypatch: pytest.MonkeyPatch) -> Prefect:
    made = Prefect()
    for name in ("start_once", "under_way", "last_run"):
        monkeypatch.setattr(module, name, getattr(made, name))
    monkeypatch.setattr(module, "get_run_logger", lambda: logging.getLogger("alarms"))
    return made


def put(home: Path, *alarms: tuple[str, str, str], raised: float = 1000.0) -> Outbox:
    """Alarms that are noticed one after the other, and of which the later ones began earlier."""
    outbox = Outbox(home / "monitoring" / "outbox")
    for number, (id, pair, cause) in enumerate(alarms):
        fell = Alarm(id, pair, "d" * 64, cause, "it fell", 999.0 - number, 40)
        outbox.put(replace(fell, raised=raised + number))
    return outbox


def test_a_storm_of_a_thousand_alarms_is_one_matter() -> None:
    storm = [Alarm(f"a-{n:04}", "p-1", "d" * 64, "drift", "it fell", n, 40) for n in range(1000)]
    (matter,) = matters(storm[::-1])
    assert matter == storm


def test_however_many_alarms_a_matter_has_it_is_answered_once(
    tmp_path: Path, prefect: Prefect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # a hundred files are a second of waiting
    outbox = put(tmp_path, *((f"a-{n:04}", "p-1", "drift") for n in range(100)))
    found = Settings(home=tmp_path)
    assert deliver_alarms(found) == 0
    put(tmp_path, ("late", "p-1", "drift"), raised=5000.0)  # it storms on
    assert deliver_alarms(found) == 0
    assert list(prefect.started) == ["respond:a-0000"]
    prefect.words["respond:a-0000"] = "done"
    assert deliver_alarms(found) == 100
    assert [alarm.id for alarm in outbox.pending()] == ["late"], "which came after that answer"
    deliver_alarms(found)
    assert list(prefect.started) == ["respond:a-0000", "respond:late"]


def test_each_pair_and_cause_is_a_matter_of_its_own(tmp_path: Path, prefect: Prefect) -> None:
    put(tmp_path, ("a", "p-1", "drift"), ("b", "p-1", "dead_draft"), ("c", "p-2", "drift"))
    deliver_alarms(Settings(home=tmp_path))
    assert set(prefect.started) == {"respond:a", "respond:b", "respond:c"}


@pytest.mark.parametrize(("word", "left"), [("given up", 1), ("cancelled", 0), ("done", 0)])
def test_an_answer_that_was_given_up_leaves_its_alarm_where_it_is(
    word: str, left: int, tmp_path: Path, prefect: Prefect, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = put(tmp_path, ("a", "p-1", "drift"))
    deliver_alarms(Settings(home=tmp_path))
    prefect.words["respond:a"] = word
    deliver_alarms(Settings(home=tmp_path))
    assert len(outbox.pending()) == left
    assert ("nobody answers it any more" in caplog.text) == bool(left)
