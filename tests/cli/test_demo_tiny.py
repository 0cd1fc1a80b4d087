"""The tiny demo, killed at seeded moments, always goes on and ends. Toy models, real servers."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from cli.demo_steps import TRAFFIC
from cli.demo_tiny import CUT, WORDS, order, toy_prompts
from monitoring.series import Mark, read_series
from tests.cli.left import assert_nothing_is_left_of

MOST_SECONDS = 900  # of one life; on a quiet machine the whole demo takes two minutes
DELAY_SECONDS = 4.0  # at most, from a moment's file to the kill
WORK = "work/docstrings/*"
PROMPTS = "prompts/*.jsonl"
SWAPPED = "demo/swap.done.json"
AT_ONCE = (PROMPTS, SWAPPED)  # a moment that is soon over: killed at once, or it has passed
MOMENTS = (  # a file, and how many of it there are when the moment has come; in the story's order
    (PROMPTS, 1),
    ("run/*-schema.log", 1),
    ("demo/release-1.done.json", 1),
    (f"{WORK}/look.done.json", 1),
    (f"{WORK}/regenerate.done.json", 1),
    (f"{WORK}/trial-*/journal.jsonl", 1),
    (f"{WORK}/gate.done.json", 1),
    ("run/plain.log", 1),
    (f"{WORK}/regenerate.done.json", 2),
    (f"{WORK}/trial-*/journal.jsonl", 2),
    (f"{WORK}/gate.done.json", 2),
    (SWAPPED, 1),
)


def test_both_releases_say_every_word_once_and_share_pieces() -> None:
    first, second = order(1), order(2)
    assert sorted(first) == sorted(second) == list(range(WORDS))
    follows = dict(zip(first, first[1:], strict=False))
    same = sum(follows.get(a) == b for a, b in zip(second, second[1:], strict=False))
    assert WORDS / CUT - 1 <= same < 0.6 * WORDS


def test_no_prompt_is_in_two_sets() -> None:
    texts = [
        prompt.messages[0]["content"]
        for name in ("train", "evaluation", "traffic")
        for prompt in toy_prompts(name, 32)
    ]
    assert len(set(texts)) == len(texts)


@pytest.mark.slow
def test_the_demo_runs_through_and_swaps_while_requests_are_in_flight(tmp_path: Path) -> None:
    home, out = tmp_path / "home", tmp_path / "out.jsonl"
    child = start(home, "--keep", "--json")
    until(lambda: '"the servers stay up' in out.read_text(), child)
    news: dict[str, Any] = {}
    for line in out.read_text().splitlines():
        news |= json.loads(line)
    for url in (f"{news['mlflow']}/health", f"{news['prefect']}/api/health", news["server"]):
        path = "/health/ready" if url == news["server"] else ""
        httpx.get(url + path, timeout=30.0, trust_env=False).raise_for_status()
    os.killpg(child.pid, signal.SIGINT)
    assert child.wait(MOST_SECONDS) == 0, (tmp_path / "demo.log").read_text()[-4000:]
    assert_nothing_is_left_of(home)
    told = json.loads((home / "demo.json").read_text())
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line for line in lines if "news" not in line] == [told]
    assert told["verdict"] == "PASS"
    assert told["promoted"]
    assert told["swap"]["seen"]
    assert told["swap"]["requests_in_flight"] >= 1
    assert told["swap"]["failed"] == 0
    steps = ("prepare", "start", "release_1", "retrain", "swap", "end")
    assert all(told["seconds"][step] > 0 for step in steps)
    assert_traffic_and_marks_are_kept(home, (tmp_path / "demo.log").read_text())


@pytest.mark.slow
def test_the_demo_killed_at_twelve_seeded_moments_finishes_with_one_of_everything(
    tmp_path: Path,
) -> None:
    chance = random.Random(20)
    home = tmp_path / "home"
    for files, many in MOMENTS:
        child = start(home)
        deadline = time.monotonic() + MOST_SECONDS
        while len(list(home.glob(files))) < many and child.poll() is None:
            assert time.monotonic() < deadline, f"{files} never came"
            time.sleep(0.05)
        if files not in AT_ONCE:
            time.sleep(chance.uniform(0, DELAY_SECONDS))
        assert child.poll() is None, f"it ended by itself before {files}"
        # by turns all of it at once, and the command alone, whose children have to follow it
        for group in groups(child.pid) if chance.random() < 0.5 else [child.pid]:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        child.wait()
    (home / "run" / "stack.json").unlink()  # of the one that was killed
    child = start(home)
    until(lambda: (home / "run" / "stack.json").exists(), child)
    os.killpg(child.pid, signal.SIGINT)  # as Ctrl-C in a terminal does
    assert child.wait(MOST_SECONDS) == 130
    assert_nothing_is_left_of(home)
    child = start(home)
    code = child.wait(MOST_SECONDS)
    log = (home.parent / "demo.log").read_text()
    assert code == 0, log[-4000:]
    told = json.loads((home / "demo.json").read_text())
    assert [line["pair"] for line in told["rows"]] == [
        "old draft on old target",
        "old draft on new target",
        "new draft on new target",
    ]
    old, stale, new = (line["alpha_hat"] for line in told["rows"])
    assert stale < old - 0.2
    assert new > stale + 0.2
    assert told["swap"]["failed"] == 0
    assert told["swap"]["requests_in_flight"] >= 1 or not told["swap"]["seen"]
    drawn = (home / "acceptance.png").read_bytes()
    assert len(drawn) > 10_000
    kept = [path.read_bytes() for path in home.glob("mlflow/artifacts/**/acceptance.png")]
    assert drawn in kept, "the picture is on the pair's page in MLflow"
    state = status(home)
    assert len(state["releases"]) == 2, "registered twice"
    assert len(state["pairs"]) == 2, "trained or registered twice"
    assert [pair["version"] for pair in state["pairs"] if "champion" in pair["aliases"]] == [2]
    assert_nothing_is_left_of(home)


def assert_traffic_and_marks_are_kept(home: Path, log: str) -> None:
    """A line a prompt on stderr, and each moment of the story once in the series, in its order."""
    shown = re.findall(r"^(\d+) requests?: acceptance \d\.\d+, .* x\)$", log, re.MULTILINE)
    assert [int(number) for number in shown] == [*range(1, TRAFFIC + 1)] * 2
    for name in ("traffic-1", "traffic-2"):
        figures = json.loads((home / "demo" / f"{name}.done.json").read_text())["result"]
        assert (figures["requests"], figures["speedup"] > 0) == (TRAFFIC, True)
    entries = read_series(home / "monitoring" / "series.jsonl")
    marks = [entry for entry in entries if isinstance(entry, Mark)]
    assert [mark.what for mark in marks] == ["release", "swap", "release", "promotion", "swap"]
    assert [mark.label for mark in marks if mark.what != "swap"] == ["1", "2", "v2"]
    assert marks[1].pair != marks[3].pair == marks[4].pair


def start(home: Path, *options: str) -> subprocess.Popen[bytes]:
    """The demo in a process group of its own."""
    argv = [sys.executable, "-m", "cli.main", "demo", "--tiny", "--home", str(home), *options]
    with (
        (home.parent / "demo.log").open("ab") as log,
        (home.parent / "out.jsonl").open("ab") as out,
    ):
        return subprocess.Popen(
            argv,
            stdout=out if "--json" in options else log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )


def until(reached: Callable[[], bool], child: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + MOST_SECONDS
    while not reached():
        assert child.poll() is None, "it ended by itself"
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)


def groups(pid: int) -> set[int]:
    """The process groups of a process and of all that descend from it."""
    told = subprocess.run(
        ["ps", "-eo", "pid=,ppid=,pgid="], capture_output=True, text=True, check=True
    )
    rows = [tuple(map(int, line.split())) for line in told.stdout.splitlines()]
    family = {pid}
    while more := {child for child, parent, _ in rows if parent in family} - family:
        family |= more
    return {group for child, _, group in rows if child in family}


def status(home: Path) -> dict[str, Any]:
    told = subprocess.run(
        [sys.executable, "-m", "cli.main", "status", "--home", str(home), "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(told.stdout)
    state = next(iter(found["pairings"])) if isinstance(found.get("pairings"), list) else found
    assert isinstance(state, dict)
    return state
