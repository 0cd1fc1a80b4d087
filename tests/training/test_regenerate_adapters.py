"""A prompt for an adapter is answered with it: a draft learns from what is said when it serves."""

from __future__ import annotations

from pathlib import Path

from speculation.records import Prompt
from tests.toys import toy_adapter_folder, toy_target_folder
from training.adapter import merge
from training.recipe import Recipe
from training.regenerate import regenerate
from training.responses import read_responses

RECIPE = Recipe(responses=4, max_tokens=8, max_prompt_tokens=60)


def prompt(key: str, adapter: str | None) -> Prompt:
    return Prompt(key, ({"role": "user", "content": "the fox jumps"},), adapter=adapter)


def answered(target: Path, out: Path, *asked: Prompt, **more: Path) -> dict[str, list[int]]:
    regenerate(target, asked, out, recipe=RECIPE, adapters=more)
    return {response.prompt_id: response.ids.tolist() for response in read_responses(out)}


def test_each_prompt_is_answered_as_by_the_model_with_its_adapter_merged(tmp_path: Path) -> None:
    base = toy_target_folder(tmp_path / "base", layers=2)
    law = toy_adapter_folder(base, tmp_path / "law", r=4, lora_alpha=32, target_modules=["q_proj"])
    merged = merge(base, law, tmp_path / "merged")
    asked = [prompt("plain", None), prompt("law", "law"), prompt("again", "law")]
    found = answered(base, tmp_path / "both", *asked, law=law)
    assert found.keys() == {"plain", "law"}, "the same question is another for an adapter, once"
    assert found["plain"] == answered(base, tmp_path / "1", prompt("plain", None))["plain"]
    assert found["law"] == answered(merged, tmp_path / "2", prompt("law", None))["law"]
    assert found["law"] != found["plain"]
