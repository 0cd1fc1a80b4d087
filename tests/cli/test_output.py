"""The time left is that of what is being done now."""

from __future__ import annotations

from typing import Any

import pytest
import rich.progress

from cli.output import progress_bars


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> list[rich.progress.Progress]:
    made: list[rich.progress.Progress] = []

    class Kept(rich.progress.Progress):
        def __init__(self, *columns: Any, **rest: Any) -> None:
            super().__init__(*columns, **rest)
            made.append(self)

    monkeypatch.setattr(rich.progress, "Progress", Kept)
    return made


@pytest.mark.parametrize("again", [(0, 4), (2, 4), (5, 8)])
def test_a_step_that_runs_again_has_a_bar_that_is_not_finished(
    bars: list[rich.progress.Progress], again: tuple[int, int]
) -> None:
    with progress_bars() as progress:
        for done in range(5):
            progress(done, 4, "regenerate")
        (task,) = bars[0].tasks
        assert task.finished
        progress(*again, "regenerate")
        (task,) = bars[0].tasks
        assert not task.finished
        assert (task.completed, task.total) == again


def test_what_is_wrong_before_anything_is_done_leaves_no_empty_line(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ValueError, match="wrong"), progress_bars():
        raise ValueError("wrong")
    assert capfd.readouterr().err == ""
    with progress_bars() as progress:
        progress(1, 2, "regenerate")
    assert "regenerate" in capfd.readouterr().err


def test_the_last_word_said_twice_leaves_a_finished_bar(
    bars: list[rich.progress.Progress],
) -> None:
    with progress_bars() as progress:
        for done in (0, 4, 4):
            progress(done, 4, "regenerate")
        assert bars[0].tasks[0].finished
