"""The order of a retrain's steps, and that a finished one stays finished. What the steps do is
tested in their folders, and all of it together by the tiny demo."""

from __future__ import annotations

import shutil
from base64 import b64decode
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from prefect import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId

from configuration.settings import Pairing
from configuration.writing import write_default
from evaluation.plots import draw
from evaluation.simulation import Arm, report
from flows import keeping, making
from flows import retrain as module
from flows.attempts import kind_of
from flows.ledger import entries
from flows.line import work_folder
from flows.pictures import LARGEST
from flows.retrain import retrain
from flows.steps import PROGRESS, read_json

pytestmark = pytest.mark.usefixtures("prefect_server")
RELEASE = "c" * 64
PROMPT = '{"id": "1", "messages": [{"role": "user", "content": "the fox"}]}'
PLAN = {
    **{"target": "/t", "release": RELEASE, "version": 1, "why": "it is new", "choice": "scratch"},
    **{"draft": None, "parent": None, "parent_draft": None},
}
FINDING = {"rule": "floor", "phase": "PASS", "statement": "good", "interval": None}
GIVES: dict[str, dict[str, Any]] = {
    "look": PLAN,
    "regenerate_answers": {"responses": "/r"},
    "distil_draft": {"draft": "/d"},
    "measure_pair": {
        "folder": "/m",
        "digest": "e" * 64,
        "rows": [{"arm": "candidate", "pair": ""}],
    },
    "judge_report": {
        **{"verdict": {"findings": [FINDING]}, "phase": "PASS", "sentence": "PASS"},
        "page": "# PASS\n\n| floor | PASS | good |\n",
    },
    "register": {"version": 1, "pair_id": "p-1", "run_id": "run"},
    "settle": {"version": 1, "phase": "PASS", "promoted": True, "statement": "v1 is champion"},
}

LONG = {  # steps that take minutes or more, and what they do
    **{"look": "look", "regenerate": "regenerate_answers"},
    **{"distil": "distil_draft", "evaluate": "measure_pair"},
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_default(tmp_path / "paceline.toml", {"line": Pairing()})
    for name in ("train", "evaluation"):
        (tmp_path / "prompts").mkdir(exist_ok=True)
        (tmp_path / "prompts" / f"{name}.jsonl").write_text(PROMPT)
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    return tmp_path


def scripted(
    monkeypatch: pytest.MonkeyPatch, calls: Counter[str], *, breaks: set[str], plan: dict[str, Any]
) -> None:
    """Every step gives what GIVES says; each of `breaks` is refused the first time."""
    for name, given in {**GIVES, "look": plan}.items():
        place = keeping if name in ("register", "settle") else making

        def step(
            *_: Any, name: str = name, given: dict[str, Any] = given, **__: Any
        ) -> dict[str, Any]:
            calls[name] += 1
            if name in breaks:
                breaks.discard(name)
                raise ValueError(f"{name} is cut short")
            return given

        monkeypatch.setattr(place, name, step)
    monkeypatch.setattr(keeping, "assemble", lambda *_: Path("/pair"))
    monkeypatch.setattr(module, "rivals", lambda *_: {"champion": 1, "parent": 1})
    monkeypatch.setattr(module, "superseded", lambda *_: "")
    told = {"prompts": "", "digest": "", "count": 0, "told": "none", "refused": ""}
    monkeypatch.setattr(module, "gather", lambda *_: told)


def artifacts(run: UUID | None) -> dict[str, Any]:
    """What a run shows in Prefect's pages, by key."""
    assert run is not None
    with get_client(sync_client=True) as client:
        of_run = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run]))
        return {str(found.key): found for found in client.read_artifacts(artifact_filter=of_run)}


def test_cut_short_in_every_step_it_goes_on_from_the_last_finished_one(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()
    scripted(monkeypatch, calls, breaks=set(GIVES), plan=PLAN)
    for name in GIVES:
        with pytest.raises(ValueError, match=f"{name} is cut short"):
            retrain("line", RELEASE)
    assert retrain("line", RELEASE)["promoted"]
    assert calls == {name: 2 for name in GIVES}, "each step is cut short once and done once"
    assert retrain("line", RELEASE)["promoted"]
    assert calls["distil_draft"] == calls["register"] == calls["settle"] == 2
    *cut, done, again = entries(home)
    assert [entry["what"] for entry in (*cut, done, again)] == ["ended"] * (len(GIVES) + 2)
    assert {entry["phase"] for entry in cut} == {""}, "and what they took counts all the same"
    assert all(entry["seconds"] > 0 for entry in (*cut, done, again))
    assert (done["version"], done["phase"], done["promoted"]) == (1, "PASS", True)
    (told,) = (home / "flows" / "notices").iterdir()
    assert read_json(told)["title"] == "line: v1 is champion"  # type: ignore[index]


def test_measured_is_for_a_server_that_is_started_as_it_was(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class AskedError(Exception):
        """Ends a step where it asks for its marker."""

    found: list[dict[str, Any]] = []

    def once(work: Path, name: str, inputs: dict[str, Any], *_: Any, **__: Any) -> None:
        found.append(inputs)
        raise AskedError

    monkeypatch.setattr(module, "once", once)
    monkeypatch.setattr(module, "reporting", lambda *_: None)
    monkeypatch.setattr(module, "rivals", lambda *_: {})

    def asked() -> list[dict[str, Any]]:
        with pytest.raises(AskedError):
            module.evaluate.fn("line", home, PLAN, "/d")
        with pytest.raises(AskedError):
            module.look.fn("line", RELEASE, home, "release")
        return found[-2:]

    before = asked()
    assert not any("serving" in inputs for inputs in before), "what was finished stays finished"
    monkeypatch.setenv("PACELINE_SERVING__MAX_SLOTS", "3")
    started = {"serving": {"max_slots": 3, "max_context": 1024}}
    assert asked() == [inputs | started for inputs in before]


def test_a_measurement_that_stays_cut_short_is_an_inconclusive_pair_and_measured_on_later(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()
    scripted(monkeypatch, calls, breaks=set(), plan=PLAN)
    monkeypatch.setattr(module, "evaluate", module.evaluate.with_options(retry_delay_seconds=0))
    why: list[str | None] = ["the server hangs"]
    phase = {"PASS": {"phase": "PASS"}, "INCONCLUSIVE": {"phase": "INCONCLUSIVE"}}

    def measure(*_: Any) -> dict[str, Any]:
        calls["measure_pair"] += 1
        digest = f"{calls['measure_pair']:064d}"
        return {**GIVES["measure_pair"], "digest": digest, "incomplete": why[0]}

    def judge(line: Any, measured: dict[str, Any]) -> dict[str, Any]:
        found = "PASS" if measured["incomplete"] is None else "INCONCLUSIVE"
        return {**GIVES["judge_report"], **phase[found]}

    def settle(*given: Any) -> dict[str, Any]:
        calls["settle"] += 1
        good = given[-1] == "PASS"
        return {**GIVES["settle"], "phase": given[-1], "promoted": good, "statement": "v1 is kept"}

    monkeypatch.setattr(making, "measure_pair", measure)
    monkeypatch.setattr(making, "judge_report", judge)
    monkeypatch.setattr(keeping, "settle", settle)
    outcome = retrain("line", RELEASE)
    assert (outcome["phase"], outcome["promoted"]) == ("INCONCLUSIVE", False)
    assert outcome["statement"] == "v1 is kept, since measuring ended early: the server hangs"
    assert (calls["measure_pair"], calls["register"]) == (3, 1)
    for name in ("evaluate", "gate", "settle"):
        assert not (work_folder(home, "line", RELEASE) / f"{name}.done.json").exists()
    why[0] = None
    assert retrain("line", RELEASE)["promoted"]
    assert (calls["measure_pair"], calls["register"], calls["distil_draft"]) == (4, 2, 1)
    assert retrain("line", RELEASE)["promoted"]
    assert calls["measure_pair"] == 4


def test_what_a_newer_release_supersedes_ends_between_two_steps_and_says_so(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()
    scripted(monkeypatch, calls, breaks=set(), plan=PLAN)
    told = "release 2 came meanwhile"
    monkeypatch.setattr(module, "superseded", lambda *_: told if calls["distil_draft"] else "")
    state = retrain("line", RELEASE, return_state=True)
    outcome = state.result()
    assert isinstance(outcome, dict)
    assert (outcome["phase"], outcome["promoted"]) == ("SUPERSEDED", False)
    assert calls == {"look": 1, "regenerate_answers": 1, "distil_draft": 1}
    shown = artifacts(state.state_details.flow_run_id)
    assert str(shown["outcome"].data) == "**line**: release 2 came meanwhile."
    assert retrain("line", RELEASE, by_hand=True)["promoted"], "a person may want it all the same"


def test_a_no_that_followed_from_how_things_were_is_asked_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()
    scripted(monkeypatch, calls, breaks=set(), plan=PLAN)
    left = {**GIVES["settle"], "promoted": False, "statement": "v1 is left: users stay"}
    monkeypatch.setattr(keeping, "settle", lambda *_: left)
    assert not retrain("line", RELEASE)["promoted"]
    monkeypatch.setattr(keeping, "settle", lambda *_: GIVES["settle"])
    assert retrain("line", RELEASE)["promoted"], "the pin was lifted since"
    assert calls["look"] == calls["measure_pair"] == 1
    monkeypatch.setattr(module, "rivals", lambda *_: {"champion": 2, "parent": 2})
    retrain("line", RELEASE)
    assert calls["look"] == 2, "with another champion it is another plan"


def test_a_draft_that_is_there_already_is_not_trained(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()
    scripted(monkeypatch, calls, breaks=set(), plan={**PLAN, "choice": "given", "draft": "/given"})
    assert retrain("line", RELEASE)["promoted"]
    assert calls["regenerate_answers"] == calls["distil_draft"] == 0
    assert calls["measure_pair"] == calls["register"] == 1


def test_an_alarms_retrain_does_not_take_the_releases_for_its_own(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()
    scripted(monkeypatch, calls, breaks=set(), plan=PLAN)
    retrain("line", RELEASE)
    retrain("line", RELEASE, cause="alarm-1")
    assert calls["distil_draft"] == 2


def test_where_there_is_nothing_new_to_learn_from_a_person_hears_of_it_and_nothing_is_made(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()
    scripted(monkeypatch, calls, breaks=set(), plan=PLAN)
    told = {"prompts": "", "digest": "", "count": 0, "told": "none", "refused": "capture is off"}
    monkeypatch.setattr(module, "gather", lambda *_: told)
    outcome = retrain("line", RELEASE, cause="alarm-1")
    assert (outcome["phase"], outcome["statement"]) == ("UNTAUGHT", "capture is off")
    assert calls == {"look": 1}
    (notice,) = (home / "flows" / "notices").iterdir()
    assert read_json(notice)["title"] == "line: capture is off"  # type: ignore[index]
    assert retrain("line", RELEASE)["promoted"], "a release is not asked for traffic"


def test_without_room_on_the_disk_nothing_is_begun_and_it_waits_as_in_an_outage(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()
    scripted(monkeypatch, calls, breaks=set(), plan=PLAN)
    full = SimpleNamespace(free=10_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    for _ in range(2):
        state = retrain("line", RELEASE, return_state=True)
        told = {"name": "r", "type": state.type.value, "message": state.message, "under": ""}
        assert kind_of({**told, "at": 0.0}) == "outage"
    assert "0.0 GB are free, wanted 0.3 GB" in str(state.message)
    assert calls == {"look": 1}
    (notice,) = (home / "flows" / "notices").iterdir()
    assert "waits for room" in read_json(notice)["title"]  # type: ignore[index]


def test_what_users_asked_is_deleted_once_the_pair_is_registered(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, Counter(), breaks={"register"}, plan=PLAN)
    work = work_folder(home, "line", RELEASE, "alarm-1")
    asked = work / "traffic" / "prompts.jsonl"

    def gather(*_: Any) -> dict[str, Any]:
        asked.parent.mkdir(parents=True)
        asked.write_text(PROMPT)
        return {"prompts": str(asked), "digest": "d", "count": 1, "told": "1", "refused": ""}

    monkeypatch.setattr(module, "gather", gather)
    with pytest.raises(ValueError, match="register is cut short"):
        retrain("line", RELEASE, cause="alarm-1")
    assert asked.exists()
    assert retrain("line", RELEASE, cause="alarm-1")["promoted"]
    assert not asked.parent.exists()


def test_a_run_shows_its_plan_how_far_it_is_its_figures_its_verdict_and_its_outcome(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, Counter(), breaks=set(), plan=PLAN)
    files: list[Any] = []  # what the command line draws its bars from, while each long step runs
    for name in LONG.values():
        given = getattr(making, name)

        def step(*arguments: Any, given: Any = given, **named: Any) -> dict[str, Any]:
            arguments[-1](1, 4, "half of it")
            files.append(read_json(work_folder(home, "line", RELEASE) / PROGRESS))
            done: dict[str, Any] = given(*arguments, **named)
            return done

        monkeypatch.setattr(making, name, step)
    state = retrain("line", RELEASE, return_state=True)
    shown = artifacts(state.state_details.flow_run_id)
    assert {key: found.type for key, found in shown.items()} == {
        **{"plan": "markdown", "measured": "table"},
        **{"verdict": "markdown", "outcome": "markdown"},
        **{f"{step}-progress": "progress" for step in LONG},
    }
    assert [(now["step"], now["done"], now["total"]) for now in files] == [
        (step, 1, 4) for step in LONG
    ]
    told = {key: str(found.data) for key, found in shown.items()}
    assert "because it is new" in told["plan"]
    assert "1 prompt gives no verdict but INCONCLUSIVE" in told["plan"], "of 256 that may be asked"
    assert "candidate" in told["measured"]
    assert "| floor | PASS | good |" in told["verdict"]
    assert told["outcome"] == "**line**: v1 is champion."


def test_the_measured_plots_are_shown_and_the_verdict_says_where_each_is(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    measured = report({"candidate": Arm(0.6), "ngram": Arm(0.1)}, seed=1)
    folder = home / "trial"
    drawn = draw(measured, folder)
    large = folder / "slices.png"
    large.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(LARGEST))
    monkeypatch.setitem(GIVES, "measure_pair", {**GIVES["measure_pair"], "folder": str(folder)})
    scripted(monkeypatch, Counter(), breaks=set(), plan=PLAN)
    state = retrain("line", RELEASE, return_state=True)
    shown = artifacts(state.state_details.flow_run_id)
    images = {key: found for key, found in shown.items() if found.type == "image"}
    assert set(images) == {f"measured-{path.stem}" for path in drawn}
    for path in drawn:
        _, inside = str(images[f"measured-{path.stem}"].data).split("base64,")
        assert b64decode(inside) == path.read_bytes()
    verdict = str(shown["verdict"].data)
    assert verdict.startswith(GIVES["judge_report"]["page"])
    for path in drawn:
        assert f"- {path.stem}: artifact `measured-{path.stem}` of this run" in verdict
    left_out = f"{large} has {LARGEST + 8:,} bytes, {LARGEST:,} can be shown here: open the file"
    assert f"- slices: {left_out}" in verdict
    assert f"not shown: {left_out}" in caplog.text
