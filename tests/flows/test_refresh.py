"""The clock's retrain is for what changed; where nothing did, it is skipped and says why."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from configuration.settings import Pairing
from configuration.writing import write_default
from flows import refresh as module
from flows.basis import NAMES, basis, changed, last_retrain
from flows.ledger import entries, note
from flows.line import configured
from flows.refresh import refresh
from flows.traffic import FEWEST

RELEASE = "c" * 64
CHAMPION = SimpleNamespace(version=3, release=RELEASE, stands_in="")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_default(tmp_path / "paceline.toml", {"line": Pairing()})
    (tmp_path / "prompts").mkdir()
    for name in ("train", "evaluation"):
        (tmp_path / "prompts" / f"{name}.jsonl").write_text("")
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    for name in ("create_markdown_artifact", "get_run_logger"):
        monkeypatch.setattr(module, name, lambda *_, **__: SimpleNamespace(info=print))
    served(monkeypatch, CHAMPION)
    return tmp_path


def served(monkeypatch: pytest.MonkeyPatch, champion: Any) -> None:
    store = SimpleNamespace(champion=lambda pairing: champion)
    monkeypatch.setattr(module, "store", lambda settings: store)


def ended(home: Path, key: str) -> None:
    settings, line = configured("line")
    facts: dict[str, Any] = {"release": RELEASE, "phase": "FAIL", "version": 3, "promoted": False}
    note(home, key, "ended", "line", basis=basis(settings, line), seconds=1.0, **facts)


def test_what_changed_since_the_last_retrain_wants_one_once(home: Path) -> None:
    ended(home, "1")
    assert "nothing that a draft follows from has changed" in refresh.fn("line")["statement"]
    (home / "prompts" / "train.jsonl").write_text("\n")
    first = refresh.fn("line")
    assert "there is news: the prompts that teach" in first["statement"]
    assert refresh.fn("line")["wanted"] == first["wanted"], "two ticks for one change"
    note(home, "over", "over", "line", work=first["wanted"], why="it is done")
    (wanted,) = [entry for entry in entries(home) if entry["what"] == "wanted"]
    assert (wanted["rank"], wanted["release"]) == ("refresh", RELEASE)
    assert wanted["cause"].startswith("refresh-")
    ended(home, "2")
    assert refresh.fn("line")["wanted"] == "", "even where the gate refused what was made"


def test_requests_that_were_captured_since_the_last_retrain_are_news(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(home, "1")
    since: list[float] = []

    def captured(*_: Any, since: float, given: list[float] = since) -> list[int]:
        given.append(since)
        return [0] * FEWEST

    monkeypatch.setattr(module, "captured", captured)
    assert f"what users asked ({FEWEST} requests)" in refresh.fn("line")["statement"]
    assert since == [entries(home)[0]["at"]]


def test_where_no_retrain_is_on_record_one_is_wanted(home: Path) -> None:
    assert "everything, as far as is on record here" in refresh.fn("line")["statement"]


@pytest.mark.parametrize(
    "champion", [None, SimpleNamespace(version=2, release=RELEASE, stands_in="it waited")]
)
def test_what_has_no_draft_of_its_own_yet_is_not_refreshed(
    home: Path, monkeypatch: pytest.MonkeyPatch, champion: Any
) -> None:
    served(monkeypatch, champion)
    outcome = refresh.fn("line")
    assert (outcome["wanted"], outcome["statement"][:8]) == ("", "skipped:")


def test_a_kind_without_weights_learns_nothing(home: Path) -> None:
    (home / "paceline.toml").unlink()
    write_default(home / "paceline.toml", {"line": Pairing(draft="ngram")})
    assert "ngram learns nothing" in refresh.fn("line")["statement"]


def test_every_part_of_the_basis_has_a_word(home: Path) -> None:
    now = basis(*configured("line"))
    assert set(now) == set(NAMES)
    for name in NAMES:
        assert changed({**now, name: "another"}, now) == [NAMES[name]]
    broken: dict[str, Any] = {"what": "ended", "release": RELEASE, "version": None, "basis": now}
    assert last_retrain([broken], RELEASE) is None, "what broke down made nothing of it"
