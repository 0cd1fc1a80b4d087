"""An alarm leads to what its cause asks for, once, and for the pairing that owns the pair."""

from __future__ import annotations

import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import pytest

from configuration.settings import Pairing, Settings
from flows import respond as responding
from flows import served
from flows.ledger import entries
from monitoring.outbox import Outbox
from registry.versions import CHAMPION, PAIR_ID, PairVersion, ReleaseVersion
from speculation.records import Alarm

RELEASE = "d" * 64
SERVER = "http://127.0.0.1:1"


class Registry:
    """Two pairings, of which `b` owns pair p-1, the champion of the release that is served."""

    owners: ClassVar[dict[str, str]] = {"a": "p-9", "b": "p-1"}

    def __init__(self) -> None:
        self.left: list[tuple[str, int]] = []

    def pairs(self, pairing: str, *, having: dict[str, str]) -> list[PairVersion]:
        owned = having.get(PAIR_ID, self.owners[pairing]) == self.owners[pairing]
        return [self.champion(pairing)] if owned else []

    def champion(self, pairing: str) -> PairVersion:
        pair = self.owners[pairing]
        return PairVersion(pairing, 1, pair, RELEASE, "head", "PASS", (CHAMPION,), {}, "", "", 0.0)

    def releases(self, pairing: str) -> list[ReleaseVersion]:
        return [ReleaseVersion(pairing, 1, RELEASE, "/targets/1", "m-1", 0.0)]


@pytest.fixture
def found(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, pairings={"a": Pairing(), "b": Pairing()})


@pytest.fixture
def registry(found: Settings, monkeypatch: pytest.MonkeyPatch) -> Registry:
    made = Registry()

    def leave(registry: Registry, pairing: str, versions: Any, reason: str, step: Any) -> str:
        made.left.append((pairing, versions[0].version))
        return f"left {pairing}"

    monkeypatch.setattr(responding, "settings", lambda: found)
    monkeypatch.setattr(responding, "store", lambda _: made)
    monkeypatch.setattr(responding, "_leave", leave)
    monkeypatch.setattr(responding, "get_run_logger", lambda: logging.getLogger("respond"))
    monkeypatch.setattr(responding, "create_markdown_artifact", lambda *_, **__: None)
    return made


def respond(cause: str, pair: str = "p-1", id: str = "alarm-7") -> dict[str, Any]:
    alarm = Alarm(id, pair, RELEASE, cause, "acceptance fell", 0.0, 40)
    return responding.respond.fn(asdict(alarm))


def wanted(found: Settings) -> list[dict[str, Any]]:
    return [entry for entry in entries(found.home) if entry["what"] == "wanted"]


def test_drift_has_one_retrain_of_the_pairs_own_pairing_wanted(
    registry: Registry, found: Settings
) -> None:
    told = respond("drift")
    assert told["action"] == "retrain"
    (entry,) = wanted(found)
    assert entry["work"] == f"retrain:b:{RELEASE}:alarm-7"
    assert (entry["pairing"], entry["release"], entry["cause"]) == ("b", RELEASE, "alarm-7")


def test_an_answer_that_was_killed_half_way_is_given_again_as_it_was_decided(
    registry: Registry, found: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as killed:
        killed.setattr(responding, "act", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            respond("drift")
    assert wanted(found) == []
    for _ in range(2):  # the cooldown that it began itself is not in its own way
        assert respond("drift")["action"] == "retrain"
    assert len(wanted(found)) == 1


def test_a_second_drift_within_the_cooldown_asks_a_person(
    registry: Registry, found: Settings
) -> None:
    respond("drift")
    told = respond("drift", id="alarm-8")
    assert told["action"] == "ask"
    assert "cooldown_minutes" in told["done"]
    assert len(wanted(found)) == 1


def test_a_dead_draft_is_left_rather_than_retrained(registry: Registry, found: Settings) -> None:
    assert respond("dead_draft")["done"].endswith("left b")
    assert wanted(found) == []


@pytest.mark.parametrize(
    ("did", "lives", "left"), [(True, True, 0), (True, False, 1), (False, True, 1)]
)
def test_where_servers_are_known_it_is_loaded_anew_and_left_only_where_that_cures_nothing(
    did: bool,
    lives: bool,
    left: int,
    registry: Registry,
    found: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pairings = {"a": Pairing(), "b": Pairing(servers=(SERVER,))}
    served_by = Settings(home=found.home, pairings=pairings)
    monkeypatch.setattr(responding, "settings", lambda: served_by)
    monkeypatch.setattr(served, "reload", lambda *_: ("asked", did))
    monkeypatch.setattr(served, "lives", lambda *_, since: lives)
    assert respond("dead_draft")["action"] == "reload"
    assert len(registry.left) == left


@pytest.mark.parametrize("cause", ["mix_shift", "engine_change", "capacity", "a new cause"])
def test_what_is_not_the_drafts_fault_starts_nothing(
    cause: str, registry: Registry, found: Settings
) -> None:
    assert respond(cause)["action"] == "note"
    assert wanted(found) == []


def test_an_alarm_of_an_unknown_pair_starts_nothing(registry: Registry, found: Settings) -> None:
    assert "no pairing here" in respond("drift", pair="p-5")["done"]
    assert entries(found.home) == []


def test_what_was_done_is_kept_with_each_alarm_that_it_answers(
    registry: Registry, found: Settings
) -> None:
    outbox = Outbox(found.home / "monitoring" / "outbox")
    alarms = [Alarm(f"a-{n}", "p-1", RELEASE, "drift", "it fell", 0.0, 40) for n in range(2)]
    for alarm in alarms:
        outbox.put(alarm)
    responding.respond.fn(asdict(alarms[0]), ids=[alarm.id for alarm in alarms], count=2)
    for alarm in alarms:
        answer = outbox.response(alarm.id)
        assert answer is not None
        assert answer["action"] == "retrain"
