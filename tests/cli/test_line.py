"""A pairing from nothing to a champion by commands alone, each a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from configuration.prompts import write_prompts
from speculation.records import Prompt

CONFIGURATION = """
[pairings.toy]
target = "{target}"
[pairings.toy.recipe]
responses = 60
max_tokens = 16
max_prompt_tokens = 60
draft_vocab = 128
epochs = 1
unroll = 2
[pairings.toy.measurement]
max_tokens = 16
[pairings.toy.policy]
prompts = 20
"""


def asked(first: int, last: int) -> list[Prompt]:
    return [
        Prompt(f"{n}", ({"role": "user", "content": f"the {n} fox jumps over {n * 7 % 13}"},))
        for n in range(first, last)
    ]


def paceline(*arguments: str | Path, home: Path) -> tuple[int, dict[str, Any], str]:
    argv = [sys.executable, "-m", "cli.main", *map(str, arguments), "--home", str(home), "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)
    return done.returncode, json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.slow
def test_a_line_goes_from_a_folder_to_a_champion_by_commands_alone(tmp_path: Path) -> None:
    from tests.toys import toy_target_folder

    target = toy_target_folder(tmp_path / "target", seed=3, spread=0.15)
    home = tmp_path / "home"
    write_prompts(home / "prompts" / "train.jsonl", asked(0, 60))
    write_prompts(home / "prompts" / "evaluation.jsonl", asked(100, 120))
    assert paceline("init", "toy", target, home=home)[0] == 0
    (home / "paceline.toml").write_text(CONFIGURATION.format(target=target))

    code, released, errors = paceline("release", "--pairing", "toy", home=home)
    assert (code, released["version"]) == (0, 1), errors
    code, made, errors = paceline("retrain", "--pairing", "toy", home=home)
    assert made.get("release") == released["release"], errors
    assert (code, made["phase"]) in [(1, "FAIL"), (3, "INCONCLUSIVE")]  # one epoch on a toy
    assert made["promoted"] is False
    again = paceline("retrain", "--pairing", "toy", home=home)
    assert (again[0], again[1]) == (code, made)  # done once

    code, refused, _ = paceline("promote", "1", "--pairing", "toy", home=home)
    assert (code, refused["outcome"]) == (1, "refused")
    forced = ("promote", "1", "--pairing", "toy", "--force", "to see it served")
    assert paceline(*forced, home=home)[0] == 0
    code, shown, _ = paceline("status", home=home)
    (line,) = shown["pairings"]
    assert code == 0
    assert [pair["aliases"] for pair in line["pairs"]] == [["champion"]]
    assert [release["digest"] for release in line["releases"]] == [released["release"]]

    (report,) = home.glob("work/toy/*/trial-*/report.json")
    code, judged, _ = paceline("gate", report, "--pairing", "toy", home=home)
    assert judged["phase"] == made["phase"]
