"""What is new in the home is looked at soon, once, and not what the look itself leaves there."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from flows import hurrying
from flows.hurrying import fresh, hint, hurry_looks
from monitoring.outbox import Outbox
from speculation.records import Alarm


def alarm(id: str) -> Alarm:
    return Alarm(id, "p-1", "d", "drift", "it fell", 0.0, 40)


def test_a_new_alarm_or_hint_is_new_once_and_a_delivered_one_is_not(tmp_path: Path) -> None:
    seen: dict[str, tuple[int, set[str]]] = {}
    outbox = Outbox(tmp_path / "monitoring" / "outbox")
    outbox.put(alarm("a-0"))
    assert fresh(tmp_path, seen) == [], "the first look of a worker finds it anyway"
    outbox.put(alarm("a-1"))
    hint(tmp_path, "release-7")
    assert fresh(tmp_path, seen) == ["a-1.json", "release-7.json"]
    outbox.delivered("a-1")
    outbox.responded("a-1", action="retrain", done="it is wanted", at=0.0)
    assert fresh(tmp_path, seen) == []


def test_a_storm_asks_for_few_looks_and_a_server_that_is_away_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    ended, now = threading.Event(), 0.0
    outbox = Outbox(tmp_path / "monitoring" / "outbox")

    class Ended:
        turns = 0

        def wait(self, seconds: float) -> bool:
            nonlocal now
            now += seconds
            self.turns += 1
            if self.turns <= 8:
                outbox.put(alarm(f"a-{self.turns}"))
            return self.turns > 11

    def look(key: str) -> None:
        looks.append(key)
        if len(looks) == 1:
            raise ConnectionError("Prefect is away")

    hurry_looks(tmp_path, look, ended=Ended(), clock=lambda: now)  # type: ignore[arg-type]  # no waits
    assert looks == [f"hurry:a-{n}.json" for n in (1, 3, 5, 7)] + ["hurry:a-8.json"]
    assert hurrying.BETWEEN_SECONDS == 2 * hurrying.LOOK_SECONDS
    assert not ended.is_set()
