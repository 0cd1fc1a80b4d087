"""A pair is measured on more prompts while its verdict is INCONCLUSIVE, and no longer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from configuration.limits import Limits
from configuration.prompts import write_prompts
from configuration.settings import Pairing, Settings
from evaluation.policy import Policy
from evaluation.sequential import plan_looks
from flows import looking, measuring
from speculation.records import Prompt

ASKED = [Prompt(str(n), ({"role": "user", "content": f"{n}"},)) for n in range(100)]
LINE = Pairing(policy=Policy(prompts=30), limits=Limits(most_prompts=90))


@pytest.mark.parametrize(
    ("prompts", "most", "asked"),
    [
        (20, 90, 20),
        (30, 90, 30),
        (59, 90, 30),  # not enough for a second look
        (60, 90, 60),
        (100, 90, 90),
        (100, 50, 30),
        (100, 10, 30),  # the policy asks for so many anyway
    ],
)
def test_there_is_a_second_look_where_there_are_twice_as_many_prompts_as_the_first_takes(
    prompts: int, most: int, asked: int
) -> None:
    assert measuring.budget(replace(LINE, limits=Limits(most_prompts=most)), prompts) == asked


@pytest.mark.parametrize(("given", "at_once"), [(59, True), (100, False)])
def test_what_may_be_measured_on_is_and_its_marker_names_what_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: int, at_once: bool
) -> None:
    calls: list[tuple[str, int, Any]] = []

    def once(target: Path, arms: Any, prompts: Any, *_: Any, **named: Any) -> str:
        calls.append(("once", len(prompts), named["speed_prompts"]))
        return "report"

    def until_sure(target: Path, arms: Any, prompts: Any, *_: Any, **named: Any) -> Any:
        looks = plan_looks(len(prompts), minimum=named["first"], looks=named["looks"])
        assert named["policy"] == replace(LINE.policy, prompts=len(prompts))
        calls.append(("until sure", len(prompts), looks))
        return SimpleNamespace(report="report")

    monkeypatch.setattr(measuring, "run_trial", once)
    monkeypatch.setattr(looking, "run_until_sure", until_sure)
    settings = Settings(home=tmp_path)
    write_prompts(settings.path(LINE.evaluation_prompts), ASKED[:given])
    common: dict[str, Any] = {"line": LINE, "serving": settings.serving, "adapters": {}}
    common |= {"passed_over": 0, "progress": print}
    told: Any = measuring.measure_arms(Path("/t"), {}, ASKED[:given], tmp_path, **common)
    assert told == "report"
    follows = measuring.stops_by(settings, LINE)
    if at_once:
        assert calls == [("once", 30, LINE.policy.speed_prompts)]
        assert follows == {}, "a measurement outlives a change of the policy's margins"
    else:
        assert calls == [("until sure", 90, (30, 60, 90))]
        assert follows["most_prompts"] == 90
        assert follows["policy"]["acceptance_margin"] == LINE.policy.acceptance_margin
