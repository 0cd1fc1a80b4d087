"""A training step in a process of its own: progress, result, mistakes, faults, and its end."""

from __future__ import annotations

import os
import signal
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from flows.child import in_child
from speculation.records import Prompt
from tests.toys import toy_target_folder
from training.recipe import Recipe
from training.responses import read_responses

RECIPE = Recipe(responses=6, max_tokens=4, max_prompt_tokens=60, draft_vocab=64)


def spec(target: Path, out: Path, **changed: Any) -> dict[str, Any]:
    prompts = [Prompt(f"p{n}", ({"role": "user", "content": f"the {n} fox"},)) for n in range(9)]
    return {
        "target": str(target),
        "prompts": [asdict(prompt) for prompt in prompts],
        "out": str(out),
        "recipe": asdict(RECIPE),
        "device": "cpu",
        **changed,
    }


def test_a_step_tells_how_far_it_is_and_where_its_result_lies(tmp_path: Path) -> None:
    target = toy_target_folder(tmp_path / "target")
    heard: list[tuple[int, int, str]] = []
    found = in_child(
        "regenerate",
        spec(target, tmp_path / "answers"),
        lambda done, total, what: heard.append((done, total, what)),
    )
    assert found == tmp_path / "answers"
    assert len(list(read_responses(found))) == RECIPE.responses
    assert heard[0] == (0, 6, "responses")
    assert heard[-1] == (6, 6, "responses")


@pytest.mark.slow
def test_a_callers_mistake_is_a_value_error_with_the_steps_own_words(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no config.json"):
        in_child("regenerate", spec(tmp_path, tmp_path / "answers"), lambda *_: None)


@pytest.mark.slow
def test_a_step_that_is_killed_is_a_fault_that_says_so(tmp_path: Path) -> None:
    target = toy_target_folder(tmp_path / "target")

    def kill(done: int, total: int, what: str) -> None:
        for listing in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
            for pid in listing.read_text().split():
                if b"training.main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(int(pid), signal.SIGKILL)

    many = asdict(Recipe(responses=9, max_tokens=40, max_prompt_tokens=60, draft_vocab=64))
    with pytest.raises(RuntimeError, match="regenerate was ended by SIGKILL"):
        in_child("regenerate", spec(target, tmp_path / "answers", recipe=many), kill)


@pytest.mark.slow
def test_a_step_whose_listener_fails_does_not_outlive_it(tmp_path: Path) -> None:
    target = toy_target_folder(tmp_path / "target")

    def stop(done: int, total: int, what: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        in_child("regenerate", spec(target, tmp_path / "answers"), stop)
    left = [
        path
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if str(tmp_path).encode() in _read(path)
    ]
    assert left == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it ended while we looked
        return b""


@pytest.mark.parametrize("argv", [["training.main"], ["training.main", "a", "b"]])
def test_a_step_that_is_asked_for_wrongly_says_what_it_wanted(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    from training.main import main

    assert main(argv) == 2
    assert "wanted one file of JSON" in capsys.readouterr().out
