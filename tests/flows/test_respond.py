"""An alarm leads to what its cause asks for, once, and for the pairing that owns the pair."""

from __future__ import annotations

import logging
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from flows import respond as responding
from speculation.records import Alarm


class Registry:
    """Two pairings, of which `b` owns pair p-1."""

    owners: ClassVar[dict[str, str]] = {"a": "p-9", "b": "p-1"}

    def pairs(self, pairing: str, *, having: dict[str, str]) -> list[SimpleNamespace]:
        owned = having["paceline.pair_id"] == self.owners[pairing]
        return [SimpleNamespace(version=1)] if owned else []


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The retrains that are wanted."""
    found: list[tuple[Any, ...]] = []

    def want(settings: Any, *told: Any) -> None:
        found.append(told)

    monkeypatch.setattr(responding, "settings", lambda: SimpleNamespace(pairings=Registry.owners))
    monkeypatch.setattr(responding, "store", lambda _: Registry())
    monkeypatch.setattr(responding, "want_retrain", want)
    monkeypatch.setattr(responding, "_roll_back", lambda pairing, *_: f"rolled {pairing} back")
    monkeypatch.setattr(responding, "get_run_logger", lambda: logging.getLogger("respond"))
    monkeypatch.setattr(responding, "create_markdown_artifact", lambda *_, **__: None)
    return found


def alarm(cause: str, pair: str = "p-1") -> dict[str, Any]:
    return asdict(Alarm("alarm-7", pair, "d" * 64, cause, "acceptance fell", 0.0, 40))


def test_drift_starts_one_retrain_of_the_pairs_own_pairing(
    started: list[tuple[Any, ...]],
) -> None:
    told = responding.respond.fn(alarm("drift"))
    assert started == [("b", "d" * 64, "alarm-7", "acceptance fell")]
    assert "of b" in told["done"]


def test_a_dead_draft_is_rolled_back_rather_than_retrained(
    started: list[tuple[Any, ...]],
) -> None:
    assert responding.respond.fn(alarm("dead_draft"))["done"] == "rolled b back"
    assert started == []


@pytest.mark.parametrize("cause", ["mix_shift", "engine_change", "no_gain", "a new cause"])
def test_what_is_not_the_drafts_fault_starts_nothing(
    cause: str, started: list[tuple[Any, ...]]
) -> None:
    assert responding.respond.fn(alarm(cause))["action"] == responding.NOTE
    assert started == []


def test_an_alarm_of_an_unknown_pair_starts_nothing(
    started: list[tuple[Any, ...]],
) -> None:
    responding.respond.fn(alarm("drift", pair="p-5"))
    assert started == []
