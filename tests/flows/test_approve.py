"""A person decides: an answer that fits is acted on, another is asked for again, and what is
decided elsewhere needs none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prefect.input import RunInput

from configuration.settings import Pairing, Settings
from configuration.writing import write_default
from flows import approve as module
from flows import deciding
from flows.approve import approve
from flows.deciding import answered, close_answered
from flows.rollback import rollback
from registry.fingerprint import fingerprint
from registry.pinning import pin
from registry.promotion import promote
from registry.schema import prepare_database
from registry.store import Store
from speculation.records import Phase
from tests.registry import tiny
from tests.registry.conftest import registered

Asks = list[tuple[str, Any]]


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "mlflow.db"
    prepare_database(f"sqlite:///{path}")
    return path


@pytest.fixture
def store(migrated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A home whose release has a champion, v1, a pair that passed, v2, and an open one, v3."""
    write_default(tmp_path / "paceline.toml", {"line": Pairing()})
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    (tmp_path / "mlflow").mkdir()
    shutil.copy(migrated, tmp_path / "mlflow" / "mlflow.db")
    made = Store(Settings(home=tmp_path).registry_url)
    target = tiny.target(tmp_path / "target")
    for seed in range(2):
        registered(made, target, tmp_path / f"pair-{seed}", seed=seed, pairing="line")
    phase = Phase.INCONCLUSIVE
    registered(made, target, tmp_path / "pair-2", seed=2, pairing="line", phase=phase)
    promote(made, "line", 1, expect=None)
    for name in ("create_markdown_artifact", "get_run_logger"):
        monkeypatch.setattr(module, name, lambda *_, **__: SimpleNamespace(info=print))
    return made


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Answers for the questions that come; the keys of those that were asked."""

    def answer(*answers: dict[str, Any]) -> list[str]:
        keys: list[str] = []

        def suspend(*, wait_for_input: type[RunInput], key: str) -> RunInput:
            keys.append(key)
            return wait_for_input(**answers[len(keys) - 1])

        monkeypatch.setattr(module, "suspend_flow_run", suspend)
        return keys

    return answer


def champion(store: Store) -> int | None:
    found = store.champion("line")
    return None if found is None else found.version


def test_a_pair_that_passed_goes_live_when_a_person_says_so(
    store: Store, asked: Callable[..., list[str]], tmp_path: Path
) -> None:
    keys = asked({"promote": True})
    outcome = approve.fn("line", 2, "pair 2 passed, and a person decides", 1)
    assert outcome["promoted"]
    assert champion(store) == 2
    assert keys == ["question-0"]
    (notice,) = (tmp_path / "flows" / "notices").iterdir()
    assert "a person decides about v2" in json.loads(notice.read_text())["title"]
    assert approve.fn("line", 2, "", 1)["statement"] == "v2 is champion"
    assert keys == ["question-0"], "decided, nobody is asked"


def test_left_as_it_is_the_reason_stays_with_the_pair_and_nobody_is_asked_again(
    store: Store, asked: Callable[..., list[str]]
) -> None:
    asked({"promote": False, "reason": "it rhymes"})
    assert approve.fn("line", 2, "", 1)["statement"] == "v2 is left: it rhymes"
    assert champion(store) == 1
    assert "left by a person: it rhymes" in approve.fn("line", 2, "", 1)["statement"]


def test_without_a_pass_a_reason_is_needed_and_is_kept(
    store: Store, asked: Callable[..., list[str]]
) -> None:
    keys = asked(
        {"promote": True}, {"promote": True, "reason": " "}, {"promote": True, "reason": "seen it"}
    )
    assert approve.fn("line", 3, "pair 3 is INCONCLUSIVE, and a person decides", 1)["promoted"]
    assert keys == ["question-0", "question-1", "question-2"]
    pair = store.pair("line", 3)
    assert pair is not None
    assert (champion(store), pair.forced) == (3, "seen it")


def test_an_answer_of_another_form_is_asked_for_again(
    store: Store, asked: Callable[..., list[str]]
) -> None:
    keys = asked({"promote": "perhaps"}, {"promote": False})
    with pytest.raises(ValueError, match="promote"):
        module.Answer(promote="perhaps")
    assert approve.fn("line", 2, "", 1)["statement"] == "v2 is left: a person left it as it is"
    assert len(keys) == 2


def test_a_pin_that_came_while_the_question_waited_is_heeded(
    store: Store, asked: Callable[..., list[str]], tmp_path: Path
) -> None:
    target = tiny.target(tmp_path / "second", seed=1)
    store.register_release("line", target, fingerprint(target))
    made = registered(store, target, tmp_path / "own", seed=5, pairing="line")
    pin(store, "line", store.releases("line")[0].digest, "it rhymes")
    asked({"promote": True})
    outcome = approve.fn("line", made.version, "", 1)
    assert not outcome["promoted"]
    assert "which the pairing is pinned to (it rhymes)" in outcome["statement"]
    assert champion(store) == 1


def test_what_is_decided_elsewhere_needs_no_answer(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [
        SimpleNamespace(parameters={"pairing": "line", "version": version}) for version in (1, 2)
    ]
    runs.append(SimpleNamespace(parameters={"pairing": "gone", "version": 1}))
    closed: list[Any] = []
    monkeypatch.setattr(deciding, "paused", lambda name: runs)
    monkeypatch.setattr(deciding, "cancel", lambda run, why: closed.append(run))
    found = Settings(home=tmp_path, pairings={"line": Pairing()})
    assert close_answered(store, found) == ["line: v1 is champion"]
    assert closed == [runs[0]], "the other one still waits"
    target = tiny.target(tmp_path / "second", seed=1)
    store.register_release("line", target, fingerprint(target))
    assert "another one came after" in answered(store, "line", store.pair("line", 2))
    assert "no longer registered" in answered(store, "line", None)


def test_the_question_shows_the_verdicts_page_where_it_was_made_here(
    store: Store, tmp_path: Path
) -> None:
    from flows.line import work_folder
    from flows.steps import write_json

    pair = store.pair("line", 3)
    assert pair is not None
    found = Settings(home=tmp_path)
    assert "in MLflow" in deciding.question(found, "line", pair, "it is open", "")
    work = work_folder(tmp_path, "line", pair.release, "alarm-1")
    write_json(work / "register.done.json", {"key": "", "result": {"version": 3}})
    write_json(work / "gate.done.json", {"key": "", "result": {"page": "# INCONCLUSIVE"}})
    assert "# INCONCLUSIVE" in deciding.question(found, "line", pair, "it is open", "")


def test_a_rollback_leaves_the_champion_that_is_meant_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    import flows.rollback as rolling

    for name in ("create_markdown_artifact", "get_run_logger"):
        monkeypatch.setattr(rolling, name, lambda *_, **__: SimpleNamespace(info=print))
    promote(store, "line", 2, expect=1)
    for _ in range(2):
        assert rollback.fn("line", reason="it rhymes", leave=2)["moved"]
        assert champion(store) == 1
    assert rollback.fn("line", to="ngram")["moved"]
    with pytest.raises(ValueError, match="wanted a version's number, ngram, none, or nothing"):
        rollback.fn("line", to="0")


@pytest.mark.slow  # a server, and the engine twice
@pytest.mark.usefixtures("prefect_server")
def test_a_run_that_waits_is_resumed_with_an_answer_and_asks_again_for_one_that_fits(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefect import get_client
    from prefect.exceptions import Pause
    from prefect.flow_engine import run_flow

    from flows.deployments import deployments
    from flows.line import settings
    from flows.runs import paused, start

    monkeypatch.undo()  # the engine's own logger and artifacts
    monkeypatch.setenv("PACELINE_HOME", str(settings_home(store)))
    (made,) = [one for one in deployments(settings(), 60.0) if one.flow_name == "approve"]
    made.apply()
    run = start("approve", {"pairing": "line", "version": 3, "why": "it is open"}, "approve:line:3")

    def go_on() -> Any:
        with get_client(sync_client=True) as client:
            with suppress(Pause):  # it ends the process of a run that waits
                run_flow(approve, flow_run=client.read_flow_run(run.id), return_type="state")
            return client.read_flow_run(run.id)

    def answer(**given: Any) -> None:
        with get_client(sync_client=True) as client:
            client.resume_flow_run(run.id, run_input=given)

    assert go_on().state.is_paused()
    assert [one.id for one in paused("approve")] == [run.id]
    answer(promote=True)
    assert go_on().state.is_paused(), "without a PASS a reason is needed"
    answer(promote=True, reason="seen it")
    assert go_on().state.is_completed()
    assert champion(store) == 3


def settings_home(store: Store) -> Path:
    """The home that the store's database lies in."""
    return Path(store.url.removeprefix("sqlite:///")).parent.parent
