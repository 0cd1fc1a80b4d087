"""The real story: SmolLM2, its LoRA and the standard library, as `make demo` tells it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli import demo_real
from cli.demo_real import EXAMPLES, real_story
from evaluation.samples import is_known, question_digest
from flows.lineage import learned
from registry.fingerprint import fingerprint
from tests.cli.left import assert_nothing_is_left_of

MOST_SECONDS = 3600  # a quarter of an hour on two quiet cores


@pytest.mark.slow
def test_the_real_story_has_prompts_enough_that_no_draft_knows_and_a_lora_as_its_second_release(
    tmp_path: Path,
) -> None:
    story = real_story(tmp_path, None, from_scratch=False, prompts=None)
    first = story.first_release(tmp_path / "targets" / "release-1")
    prompts = story.prompts(first)
    assert len(prompts["train"]) == demo_real.TRAIN
    assert len(prompts["traffic"]) == demo_real.TRAFFIC
    assert len(prompts["evaluation"]) >= story.evaluation_prompts
    asked = {name: {question_digest(each) for each in found} for name, found in prompts.items()}
    known = learned(str(EXAMPLES / "draft")) or frozenset()
    met = {name: sum(is_known(each, known) for each in found) for name, found in prompts.items()}
    assert met["train"], "the draft learned from questions of this very corpus"
    assert met["evaluation"] == met["traffic"] == 0
    assert not asked["train"] & (asked["evaluation"] | asked["traffic"])
    assert not asked["evaluation"] & asked["traffic"]

    def never(name: str, command: object) -> None:
        raise AssertionError(f"the shipped adapter needs no {name}")

    second = story.second_release(first, tmp_path / "targets" / "release-2", never)
    as_lora = fingerprint(first, adapter=EXAMPLES / "adapter")
    assert fingerprint(second).digest == as_lora.digest != fingerprint(first).digest


@pytest.mark.soak
def test_the_demo_on_real_weights_shows_the_old_draft_fall_and_the_new_one_recover(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    threads = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # as a user has it, not as tests do
    environ = {name: value for name, value in os.environ.items() if name not in threads}
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", "demo", "--json", "--home", str(home)],
        capture_output=True,
        text=True,
        check=False,
        env=environ,
        timeout=MOST_SECONDS,
    )
    assert done.returncode in (0, 1, 3), done.stderr[-4000:]  # a verdict, whichever it is
    told = json.loads((home / "demo.json").read_text())
    assert json.loads(done.stdout.splitlines()[-1]) == told
    assert (told["verdict"] == "PASS") == (done.returncode == 0)
    assert [row["pair"] for row in told["rows"]] == [
        "old draft on old target",
        "old draft on new target",
        "new draft on new target",
    ]
    assert all(row["requests"] == 60 for row in told["rows"])
    old, stale, new = (row["alpha_hat"] for row in told["rows"])
    assert stale < old
    assert new > stale
    assert told["swap"]["failed"] == 0
    assert told["swap"]["seen"] == told["promoted"] == (done.returncode == 0)
    assert_nothing_is_left_of(home)
