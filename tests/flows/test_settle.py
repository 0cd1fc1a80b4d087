"""A pair is promoted only over the champion that it was judged against."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from configuration.limits import Limits
from configuration.prompts import write_prompts
from configuration.settings import Pairing, Settings
from flows import keeping, making, watch
from flows import respond as responding
from flows.missing import missing
from registry.fingerprint import fingerprint
from registry.promotion import promote
from registry.schema import prepare_database
from registry.store import Store
from speculation.records import Prompt
from tests.registry import tiny
from tests.registry.conftest import registered

LINE = Pairing(draft="ngram")
ASKED = Prompt("1", ({"role": "user", "content": "fox"},))


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "mlflow.db"
    prepare_database(f"sqlite:///{path}")
    return path


@pytest.fixture
def settings(migrated: Path, tmp_path: Path) -> Settings:
    """A home whose release 1 has a champion, v1, and a second pair that passed, v2."""
    settings = Settings(home=tmp_path, pairings={"line": LINE})
    (tmp_path / "mlflow").mkdir()
    shutil.copy(migrated, tmp_path / "mlflow" / "mlflow.db")
    write_prompts(settings.path(LINE.evaluation_prompts), [ASKED])
    target = tiny.target(tmp_path / "targets" / "1")
    store = Store(settings.registry_url)
    for seed in range(2):
        registered(store, target, tmp_path / f"pair-{seed}", seed=seed, pairing="line")
    promote(store, "line", 1, expect=None)
    return settings


def looked_at(settings: Settings) -> tuple[dict[str, object], int]:
    """Release 2 comes and is looked at, and its pair is registered: the plan and the version."""
    store = Store(settings.registry_url)
    target = tiny.target(settings.home / "targets" / "2", seed=1)
    release = fingerprint(target)
    store.register_release("line", target, release)
    work = settings.home / "work"
    plan = making.look(settings, LINE, "line", release.digest, work, lambda *_: None)
    made = registered(store, target, settings.home / "pair-2", "ngram", pairing="line")
    return plan, made.version


def test_a_pair_is_promoted_over_the_champion_that_it_was_judged_against(
    settings: Settings,
) -> None:
    plan, version = looked_at(settings)
    assert plan["champion"] == 1
    outcome = keeping.settle(settings, "line", plan, version, "PASS")
    champion = Store(settings.registry_url).champion("line")
    assert outcome["promoted"]
    assert champion is not None
    assert champion.version == version


def test_where_a_person_decides_a_pair_that_passed_is_asked_about_and_not_promoted(
    settings: Settings,
) -> None:
    plan, version = looked_at(settings)
    line = replace(LINE, limits=Limits(approval="person"))
    asks = replace(settings, pairings={"line": line})
    outcome = keeping.settle(asks, "line", plan, version, "PASS")
    assert not outcome["promoted"]
    store = Store(settings.registry_url)
    champion = store.champion("line")
    assert champion is not None
    assert champion.version == 1
    named = (store.releases("line"), store.pairs("line"), champion)
    over = {f"retrain:line:{plan['release']}": "it is done"}
    ((flow, parameters, key, _),) = missing("line", line, *named, now=0.0, ended=over)
    assert (flow, parameters["version"], key) == ("approve", version, f"approve:line:{version}")


def test_a_champion_that_came_between_look_and_settle_stays(settings: Settings) -> None:
    plan, version = looked_at(settings)
    store = Store(settings.registry_url)
    promote(store, "line", 2, expect=1)
    outcome = keeping.settle(settings, "line", plan, version, "PASS")
    assert not outcome["promoted"]
    assert "was judged against v1, but the champion is v2" in outcome["statement"]
    champion = store.champion("line")
    assert champion is not None
    assert champion.version == 2, "the alias is where the other one put it"

    ((flow, _, key, _),) = missing(
        "line", LINE, store.releases("line"), store.pairs("line"), champion, now=0.0
    )
    assert (flow, key) == ("retrain", f"retrain:line:{plan['release']}"), (
        "the work that has ended with this outcome, which is never started again"
    )


def test_a_person_who_went_back_a_release_is_not_overruled(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, version = looked_at(settings)
    store = Store(settings.registry_url)
    assert promote(store, "line", version, expect=1).ok
    assert promote(store, "line", 1, expect=version, force="it rhymes", by_hand=True).ok
    outcome = keeping.settle(settings, "line", {**plan, "champion": 1}, version, "PASS")
    assert not outcome["promoted"]
    assert "users stay on release 1 (" in outcome["statement"]
    assert "pinned to (it rhymes)" in outcome["statement"]

    line = replace(LINE, max_wait_hours=1.0)
    monkeypatch.setattr(watch, "stands", lambda key, *, inputs: ("due", ""))
    for configured in (line, LINE):
        started = watch.lacking(store, settings, "line", configured)
        assert [one["flow"] for one in started] == ["retrain"], "and nothing goes live"

    of_the_pinned = {**plan, "release": store.releases("line")[0].digest, "champion": 1}
    assert keeping.settle(settings, "line", of_the_pinned, 2, "PASS")["promoted"]


def test_one_release_that_two_hosts_announced_at_once_supersedes_nothing(
    settings: Settings,
) -> None:
    plan, version = looked_at(settings)
    store = Store(settings.registry_url)
    twice = store.client.get_model_version("line.target", "2")
    store.client.create_model_version("line.target", str(twice.source), tags=twice.tags)
    assert [known.version for known in store.releases("line")] == [1, 2, 3]
    assert keeping.settle(settings, "line", plan, version, "PASS")["promoted"]


def test_a_dead_draft_is_left_for_an_earlier_pair_and_then_for_one_that_needs_no_making(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(responding, "settings", lambda: settings)
    store = Store(settings.registry_url)
    for alarm, version, kind in (("a-1", 2, "head"), ("a-2", 3, "ngram")):
        dead = store.champion("line")
        assert dead is not None
        for _ in range(2):  # a flow that is tried again leaves it once
            step = {"kind": "roll_back", "to": "ngram", "why": "its draft is dead"}
            of = {"id": alarm, "cause": "dead_draft"}
            responding.act(store, settings, "line", [dead], of, step)
        champion = store.champion("line")
        assert champion is not None
        assert (champion.version, champion.draft_kind) == (version, kind)
        assert champion.passed or champion.forced, "or no server would follow"
