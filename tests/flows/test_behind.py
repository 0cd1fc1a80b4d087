"""A server that does not follow the champion is hurried, and told of when that does not help."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from configuration.settings import Pairing, Settings
from flows import behind as module
from flows.behind import HURRIED_AFTER, TOLD_AFTER, counted, look_at_servers
from registry.versions import CHAMPION, PairVersion

SERVER = "http://127.0.0.1:9"
LOG = logging.getLogger("behind")


def row(pair: str | None, fault: str = "") -> dict[str, Any]:
    return {"server": SERVER, "pair": pair, "fault": fault, "trouble": None}


def test_looks_behind_are_counted_one_after_the_other() -> None:
    assert counted([row("p-2")], "p-2", {SERVER: 7}) == {SERVER: 0}
    assert counted([row("p-1")], "p-2", {SERVER: 7}) == {SERVER: 8}
    assert counted([row(None, "away")], "p-2", {}) == {SERVER: 1}


def test_it_is_hurried_every_few_looks_and_told_of_after_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found, line = Settings(home=tmp_path), Pairing(servers=(SERVER,))
    champion = PairVersion("line", 2, "p-2", "d", "head", "PASS", (CHAMPION,), {}, "", "", 0.0)
    hurried: list[int] = []
    look = 0
    monkeypatch.setattr(module, "served", lambda *_: [row("p-1")])
    monkeypatch.setattr(module, "hurry", lambda *_: hurried.append(look))
    for look in range(1, TOLD_AFTER + 1):
        assert not caplog.records
        (told,) = look_at_servers(found, "line", line, champion, logger=LOG)
        assert told["behind"] == look
    assert hurried == [HURRIED_AFTER, 2 * HURRIED_AFTER, 3 * HURRIED_AFTER]
    assert f"{SERVER} is behind v2 of line for 10 looks: it serves p-1" in caplog.text
    assert look_at_servers(found, "line", Pairing(), champion, logger=LOG) == []
