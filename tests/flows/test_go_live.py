"""A release goes live before its own draft is made, by what the pairing's `on_release` says."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from configuration.prompts import write_prompts
from configuration.settings import Pairing, Settings
from configuration.writing import write_default
from flows import go_live as flow
from flows import keeping, making, standing_in
from flows.go_live import go_live
from flows.line import configured
from registry.fingerprint import fingerprint
from registry.promotion import promote, rollback
from registry.schema import prepare_database
from registry.store import Store
from speculation.records import Prompt
from tests.registry import tiny
from tests.registry.conftest import registered

pytestmark = pytest.mark.usefixtures("prefect_server")
WHY = "because it waited 24.0 hours for its draft (max_wait_hours)"


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "mlflow.db"
    prepare_database(f"sqlite:///{path}")
    return path


def home(tmp_path: Path, migrated: Path, monkeypatch: pytest.MonkeyPatch, line: Pairing) -> Store:
    """Release 1 is served by v1, a head; release 2 is announced and nothing made for it."""
    write_default(tmp_path / "paceline.toml", {"line": line})
    asked = Prompt("1", ({"role": "user", "content": "fox"},))
    write_prompts(tmp_path / line.evaluation_prompts, [asked])
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    (tmp_path / "mlflow").mkdir()
    shutil.copy(migrated, tmp_path / "mlflow" / "mlflow.db")
    store = Store(Settings(home=tmp_path).registry_url)
    registered(store, tiny.target(tmp_path / "1"), tmp_path / "pair", pairing="line")
    promote(store, "line", 1, expect=None)
    target = tiny.target(tmp_path / "2", seed=1)
    store.register_release("line", target, fingerprint(target))
    return store


def newest(store: Store) -> str:
    return store.releases("line")[-1].digest


@pytest.mark.parametrize("kind", ["ngram", "none"])
def test_a_release_that_waited_long_enough_is_served_without_weights_and_still_lacks_a_draft(
    tmp_path: Path, migrated: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    store = home(tmp_path, migrated, monkeypatch, Pairing(stand_in=kind))  # type: ignore[arg-type]
    digest = newest(store)
    outcome = go_live("line", digest, WHY)
    champion = store.champion("line")
    assert champion is not None
    assert outcome == {
        **{"version": champion.version, "promoted": True},
        "statement": "v2 is now champion, v1 is previous",
    }
    assert (champion.release, champion.draft_kind) == (digest, kind)
    assert champion.forced == champion.stands_in == WHY
    assert champion.promoted
    assert go_live("line", digest, WHY) == outcome, "asked again, it gives what it gave"
    assert len(store.pairs("line")) == 2

    plan = making.look(*looked(tmp_path, store), digest, tmp_path / "look", lambda *_: None)
    assert plan["champion"] == 2
    assert plan["parent"] == store.pairs("line")[-1].pair_id, "the next draft starts from the last"


def looked(tmp_path: Path, store: Store) -> tuple[Settings, Pairing, str]:
    settings, line = configured("line")
    return settings, line, "line"


@pytest.fixture(autouse=True)
def downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old draft from where it was made, not through an MLflow server."""
    old = tmp_path / "pair" / "draft"
    monkeypatch.setattr(making, "fetched", lambda *_: old)
    monkeypatch.setattr(making, "_look_at", lambda *_: None)


def test_a_pair_made_meanwhile_follows_what_stands_in(
    tmp_path: Path, migrated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = home(tmp_path, migrated, monkeypatch, Pairing())
    digest = newest(store)
    settings, line, name = looked(tmp_path, store)
    plan = making.look(settings, line, name, digest, tmp_path / "look", lambda *_: None)
    assert plan["champion"] == 1
    go_live("line", digest, WHY)
    made = registered(store, tmp_path / "2", tmp_path / "own", seed=3, pairing="line")
    assert keeping.settle(settings, "line", plan, made.version, "PASS")["promoted"]
    champion = store.champion("line")
    assert champion is not None
    assert champion.version == made.version
    assert rollback(store, "line").champion == store.pair("line", 2), "what stood in serves again"


def test_what_came_first_stays(
    tmp_path: Path, migrated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = home(tmp_path, migrated, monkeypatch, Pairing())
    digest = newest(store)
    made = registered(store, tmp_path / "2", tmp_path / "own", seed=3, pairing="line")
    promote(store, "line", made.version, expect=1)
    outcome = go_live("line", digest, WHY)
    assert "v2 serves release" in outcome["statement"]
    assert [pair.version for pair in store.pairs("line")] == [2, 1]


def test_a_release_that_was_superseded_does_not_go_live(
    tmp_path: Path, migrated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = home(tmp_path, migrated, monkeypatch, Pairing())
    digest = newest(store)
    later = tiny.target(tmp_path / "3", seed=2)
    store.register_release("line", later, fingerprint(later))
    outcome = go_live("line", digest, WHY)
    assert not outcome["promoted"]
    assert "release 3 is newer" in outcome["statement"]
    champion = store.champion("line")
    assert champion is not None
    assert champion.version == 1


def tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, phase: str, ngram: float) -> list[str]:
    """A trial whose verdict is `phase`, n-gram needing `ngram` forwards of plain's 100; what was
    measured."""
    asked: list[str] = []
    rows = [
        {"arm": arm, "pair": "p", "forwards_per_request": forwards}
        for arm, forwards in (("candidate", 50.0), ("ngram", ngram), ("none", 100.0))
    ]

    def measure(settings: Settings, line: Pairing, plan: Any, draft: str, *_: Any) -> Any:
        asked.append(draft)
        return {"folder": str(tmp_path), "digest": "e" * 64, "rows": rows, "passed_over": 0}

    def judge(line: Pairing, measured: Any) -> Any:
        told = {"phase": phase, "sentence": f"{phase}: so it is", "page": f"# {phase}"}
        return {**told, "verdict": {"findings": []}}

    def register(settings: Settings, pairing: str, *_: Any) -> Any:
        store = Store(settings.registry_url)
        made = registered(store, tmp_path / "2", tmp_path / "kept", pairing=pairing)
        return {"version": made.version}

    (tmp_path / "prompts").mkdir(exist_ok=True)
    (tmp_path / "prompts" / "evaluation.jsonl").write_text("{}")
    monkeypatch.setattr(making, "measure_pair", measure)
    monkeypatch.setattr(making, "judge_report", judge)
    monkeypatch.setattr(keeping, "assemble", lambda *_: tmp_path)
    monkeypatch.setattr(keeping, "register", register)
    return asked


def test_at_once_the_old_draft_serves_the_release_where_it_passes_a_trial(
    tmp_path: Path, migrated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = home(tmp_path, migrated, monkeypatch, Pairing(on_release="at_once"))
    asked = tried(monkeypatch, tmp_path, "PASS", ngram=80.0)
    assert go_live("line", newest(store), "because it is to go live at once")["promoted"]
    champion = store.champion("line")
    assert asked == [str(tmp_path / "pair" / "draft")]
    assert champion is not None
    assert (champion.release, champion.draft_kind) == (newest(store), "head")
    assert champion.stands_in == "the draft of v1 serves it until its own is made"
    assert not champion.forced


@pytest.mark.parametrize(("ngram", "kind"), [(80.0, "ngram"), (99.0, "none")])
def test_at_once_the_best_without_weights_serves_it_where_the_old_draft_does_not_pass(
    tmp_path: Path, migrated: Path, monkeypatch: pytest.MonkeyPatch, ngram: float, kind: str
) -> None:
    store = home(tmp_path, migrated, monkeypatch, Pairing(on_release="at_once"))
    tried(monkeypatch, tmp_path, "FAIL", ngram=ngram)
    assert go_live("line", newest(store), "because it is to go live at once")["promoted"]
    champion = store.champion("line")
    assert champion is not None
    assert (champion.release, champion.draft_kind) == (newest(store), kind)
    assert champion.forced == "because it is to go live at once; FAIL: so it is"


def test_a_trial_that_cannot_be_made_does_not_hold_the_release_back(
    tmp_path: Path, migrated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = home(tmp_path, migrated, monkeypatch, Pairing(on_release="at_once"))

    def broken(*_: Any) -> Any:
        raise ValueError("no prompts are left")

    monkeypatch.setattr(standing_in, "begin", broken)
    assert go_live("line", newest(store), "because it is to go live at once")["promoted"]
    champion = store.champion("line")
    assert champion is not None
    assert champion.forced.endswith("the old draft was not tried: no prompts are left")


def test_what_waits_for_a_computing_retrain_waits_ten_minutes_at_most(
    tmp_path: Path, migrated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.steps import alone

    store = home(tmp_path, migrated, monkeypatch, Pairing(on_release="at_once"))
    monkeypatch.setattr(flow, "WAIT_SECONDS", 0.2)
    with alone(tmp_path / "work" / "lock"):
        assert go_live("line", newest(store), "because it is to go live at once")["promoted"]
    champion = store.champion("line")
    assert champion is not None
    assert "another computes here since 0.2 s" in champion.forced
