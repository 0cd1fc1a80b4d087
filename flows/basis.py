"""What a draft and its verdict follow from, by name: a retrain for the same gives the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from configuration.settings import Pairing, Settings
from flows.keeping import code_version
from flows.steps import digest, file_digest

NAMES = {  # in words
    "train_prompts": "the prompts that teach",
    "evaluation_prompts": "the prompts that judge",
    "recipe": "the recipe",
    "policy": "the policy",
    "code": "Paceline itself",
}


def basis(settings: Settings, line: Pairing) -> dict[str, Any]:
    """As it is now."""
    return {
        "train_prompts": _digest(settings.path(line.train_prompts)),
        "evaluation_prompts": _digest(settings.path(line.evaluation_prompts)),
        "recipe": digest(asdict(line.recipe)),
        "policy": digest({**asdict(line.policy), **asdict(line.measurement)}),
        "code": code_version(),
    }


def last_retrain(past: Sequence[Mapping[str, Any]], release: str) -> Mapping[str, Any] | None:
    """The entry of the last retrain of a release whose pair was judged, with its `basis`; None
    where no retrain of this home did."""
    for entry in reversed(past):
        mine = entry["what"] == "ended" and entry["release"] == release
        if mine and entry["version"] is not None and entry.get("basis"):
            return dict(entry)
    return None


def changed(then: Mapping[str, Any] | None, now: Mapping[str, Any]) -> list[str]:
    """What is another than then, in words; everything where nothing is known of then."""
    if then is None:
        return ["everything, as far as is on record here,"]
    return [words for name, words in NAMES.items() if then.get(name) != now.get(name)]


def _digest(path: Path) -> str:
    """Of a file; empty where there is none, such as the training prompts of an n-gram draft."""
    return file_digest(path) if path.is_file() else ""
