"""What a retrain reports while it runs is what the demo shows, step by step, with the time left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import rich.progress

from cli import demo_wait
from cli.demo_wait import RetrainFailedError, wait_for_outcome
from cli.output import progress_bars
from flows import progress, runs
from flows.progress import reporting
from flows.steps import write_json

OUTCOME = {"phase": "PASS", "promoted": True, "statement": "v1 is champion", "version": 1}


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Prefect and no waiting."""
    monkeypatch.setattr(demo_wait, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(runs, "given_up", lambda key: None)
    monkeypatch.setattr(progress, "create_progress_artifact", lambda **_: uuid4())
    monkeypatch.setattr(progress, "update_progress_artifact", lambda **_: None)


def a_retrain(work: Path) -> Iterator[None]:
    """One look of the waiting command after another, and what the flow did before it."""

    def done(step: str, result: dict[str, Any]) -> None:
        write_json(work / f"{step}.done.json", {"key": "k", "result": result})

    for step, what in (
        ("regenerate", "responses"),
        ("distil", "epoch 1"),
        ("evaluate", "greeting"),
    ):
        report = reporting(work, step)
        for place in (0, 4):  # its first word and its last are never held back
            report(place, 4, what)
            yield
        done(step, {})
        yield
    done("settle", OUTCOME)
    while True:
        yield


def waited(work: Path, **named: Any) -> tuple[Any, list[str], list[tuple[int, int, str]]]:
    """The outcome, the steps whose end was told, and what was shown of those that ran."""
    ended: list[str] = []
    shown: list[tuple[int, int, str]] = []
    script = a_retrain(work)
    given: dict[str, Any] = {
        **{"told": set(), "hurry": lambda: None, "concluded": lambda: None},
        **{"done": lambda step, result: ended.append(step), "check": lambda: next(script)},
        **{"progress": lambda *seen: shown.append(seen)},
        **named,
    }
    return wait_for_outcome(work, lambda: "retrain:line:e", **given), ended, shown


def test_regeneration_training_and_measuring_are_each_shown_as_far_as_they_are(
    tmp_path: Path,
) -> None:
    outcome, ended, shown = waited(tmp_path)
    assert outcome == OUTCOME
    assert ended == ["regenerate", "distil", "evaluate", "settle"]
    names = ("regenerate: responses", "distil: epoch 1", "evaluate: measuring")
    assert shown == [(done, 4, name) for name in names for done in (0, 4)]


def test_what_was_told_before_is_not_told_again(tmp_path: Path) -> None:
    _, ended, shown = waited(tmp_path, told={"regenerate", "evaluate"})
    assert ended == ["distil", "settle"]
    assert {name for _, _, name in shown} == {"distil: epoch 1"}


def test_the_wait_ends_early_where_it_was_told_to(tmp_path: Path) -> None:
    marker = tmp_path / "distil.done.json"
    outcome, ended, _ = waited(tmp_path, reached=marker.exists)
    assert (outcome, ended) == (None, ["regenerate", "distil"])


def test_a_flow_that_gave_up_ends_the_wait_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "given_up", lambda key: f"{key} failed thrice")
    with pytest.raises(RetrainFailedError, match="retrain:line:e failed thrice"):
        waited(tmp_path)


def test_the_bars_show_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    columns: list[Any] = []

    class Kept(rich.progress.Progress):
        def __init__(self, *given: Any, **rest: Any) -> None:
            super().__init__(*given, **rest)
            columns.extend(given)

    monkeypatch.setattr(rich.progress, "Progress", Kept)
    with progress_bars() as report:
        report(1, 4, "regenerate: responses")
    assert any(isinstance(column, rich.progress.TimeRemainingColumn) for column in columns)
