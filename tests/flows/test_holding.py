"""A retrain that the limits do not allow waits, says why, and people hear of it once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from configuration.limits import Limits
from configuration.settings import Pairing, Settings
from flows.holding import held_back
from flows.ledger import note
from flows.steps import read_json

DAY = 86_400.0


def wanted(flow: str, pairing: str, release: str) -> dict[str, Any]:
    parameters = {"pairing": pairing, "release": release}
    what = {"flow": flow, "pairing": pairing, "parameters": parameters, "why": "it is new"}
    return {**what, "key": f"{flow}:{pairing}:{release}"}


def notices(home: Path) -> list[str]:
    found = (home / "flows" / "notices").glob("*.json")
    return sorted(str((read_json(path) or {})["title"]) for path in found)


def test_what_the_day_allows_is_of_one_pairing_and_of_retrains_alone(tmp_path: Path) -> None:
    lines = {name: Pairing(limits=Limits(compute_minutes_a_day=1.0)) for name in ("a", "b")}
    found = Settings(home=tmp_path, pairings=lines)
    works = [wanted("retrain", "a", "r"), wanted("retrain", "b", "r"), wanted("go_live", "a", "r")]
    assert held_back(found, works, now=0.0) == {}
    facts: dict[str, Any] = {"release": "r", "phase": "", "promoted": False, "version": None}
    note(tmp_path, "1", "ended", "a", seconds=60.0, **facts)
    for _ in range(3):
        held = held_back(found, works, now=0.0)
    assert list(held) == ["retrain:a:r"]
    assert "compute_minutes_a_day" in held["retrain:a:r"]
    assert notices(tmp_path) == ["a: a retrain waits"], "once a day"


def test_a_person_is_called_once_when_too_many_candidates_failed(tmp_path: Path) -> None:
    found = Settings(home=tmp_path, pairings={"a": Pairing(limits=Limits(failed_candidates=2))})
    facts: dict[str, Any] = {"release": "r", "phase": "FAIL", "promoted": False, "seconds": 1.0}
    for version in (1, 2):
        note(tmp_path, f"{version}", "ended", "a", version=version, **facts)
    for day in range(3):
        held = held_back(found, [wanted("retrain", "a", "r")], now=day * DAY)
        assert "failed_candidates" in held["retrain:a:r"]
    assert notices(tmp_path) == ["a: a retrain waits for a person"]
    assert held_back(found, [wanted("retrain", "a", "other")], now=0.0) == {}
