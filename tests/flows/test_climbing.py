"""A pair that was left because of an alarm is promoted again, once, by a real registry's rules."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from configuration.settings import Settings
from flows import climbing
from flows.ladder import QUIET_SECONDS
from flows.ledger import entries, note
from registry.versions import CHAMPION, ROLLED_BACK, STANDS_IN, PairVersion


def pair(version: int, kind: str, **tags: str) -> PairVersion:
    return PairVersion(
        "line", version, f"p-{version}", "d", kind, "PASS", (CHAMPION,), tags, "", "", 0.0
    )


def test_up_it_goes_once_by_force_and_never_past_a_person(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Settings(home=tmp_path)
    stands = pair(3, "none", **{STANDS_IN: "no gain"})
    left = pair(2, "head", **{ROLLED_BACK: "alarm a-1: no_gain"})
    registry: Any = SimpleNamespace(
        champion=lambda name: stands, pairs=lambda name, having: [stands, left]
    )
    note(found.home, "respond:a-1", "answered", "line", kinds=["fall_back"], cause="no_gain")
    word = "due"
    monkeypatch.setattr(climbing, "stands", lambda key: (word, ""))
    now = entries(found.home)[0]["at"]
    assert climbing.climbs(registry, found, "line", now=now + 60) == []
    later = now + QUIET_SECONDS
    (climb,) = climbing.climbs(registry, found, "line", now=later)
    assert (climb["flow"], climb["key"]) == ("promote", "climb:line:2")
    told = climb["parameters"]
    assert (told["version"], told["expect"], told["by_hand"]) == (2, 3, False)
    assert "no_gain" in told["force"]
    for then in ("done", "due"):
        word = then
        assert climbing.climbs(registry, found, "line", now=later) == []
