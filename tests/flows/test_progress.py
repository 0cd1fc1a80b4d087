"""How far a step is: written at its first and last word and now and then between, with what is
left."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from flows import progress
from flows.progress import reporting
from flows.steps import PROGRESS, read_json


class Clock:
    """Stands until it is moved."""

    now = 1000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


@pytest.fixture
def artifacts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """What the server was told: what is done, and how much of it in per cent."""
    told: list[tuple[str, float]] = []
    named: dict[UUID, str] = {}

    def create(*, progress: float, key: str, description: str) -> UUID:
        assert key == "distil-progress"
        told.append((f"new {description}", progress))
        made = uuid4()
        named[made] = description
        return made

    def update(*, artifact_id: UUID, progress: float) -> None:
        told.append((named[artifact_id], progress))

    monkeypatch.setattr(progress, "create_progress_artifact", create)
    monkeypatch.setattr(progress, "update_progress_artifact", update)
    return told


def stored(folder: Path) -> dict[str, Any]:
    found = read_json(folder / PROGRESS)
    assert found is not None
    return found


def test_the_file_says_how_far_and_how_long_from_what_it_took_so_far(
    tmp_path: Path, clock: Clock, artifacts: list[tuple[str, float]]
) -> None:
    report = reporting(tmp_path, "distil")
    report(10, 100, "epoch 1")  # gone on with: ten were there
    assert stored(tmp_path)["seconds_left"] is None, "nothing can be said yet"
    clock.now += 20.0
    report(50, 100, "epoch 1")
    assert stored(tmp_path) == {
        **{"step": "distil", "what": "epoch 1", "done": 50, "total": 100},
        **{"started": 1000.0, "updated": 1020.0},
        "seconds_left": pytest.approx(25.0),  # forty took 20 s, fifty are left
    }


def test_words_that_come_fast_are_held_back_but_never_the_last_one(
    tmp_path: Path, clock: Clock, artifacts: list[tuple[str, float]]
) -> None:
    report = reporting(tmp_path, "distil")
    report(0, 100, "epoch 1")
    clock.now += 0.4
    report(1, 100, "epoch 1")
    assert stored(tmp_path)["done"] == 0
    clock.now += 0.2
    report(2, 100, "epoch 1")
    assert stored(tmp_path)["done"] == 2
    assert artifacts == [("new epoch 1", 0.0)], "the server is asked more seldom than the disk"
    clock.now += 0.1
    report(100, 100, "epoch 1")
    assert stored(tmp_path)["done"] == 100
    assert artifacts == [("new epoch 1", 0.0), ("epoch 1", 100.0)]


def test_what_is_done_next_has_a_bar_of_its_own(
    tmp_path: Path, clock: Clock, artifacts: list[tuple[str, float]]
) -> None:
    report = reporting(tmp_path, "distil")
    report(0, 4, "epoch 1")
    clock.now += 3.0
    report(1, 4, "epoch 1")
    clock.now += 0.1
    report(0, 4, "epoch 2")
    assert stored(tmp_path)["what"] == "epoch 2"
    assert stored(tmp_path)["started"] == clock.now
    assert artifacts == [("new epoch 1", 0.0), ("epoch 1", 25.0), ("new epoch 2", 0.0)]
