"""A retrain that a person or a dead server cuts short ends soon, says why, and goes on later."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.leftovers import identity
from configuration.prompts import write_prompts
from speculation.records import Prompt
from tests.cli.left import assert_nothing_is_left_of, left_of

SECONDS = 240.0  # of one command, on a busy machine
SOON_SECONDS = 40.0  # to end: three of STOP_SECONDS and more; clients that wait take 70 and 390


def start(home: Path, *arguments: str) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "cli.main", *arguments, "--home", str(home), "--json"]
    with (home / "out.json").open("wb") as out, (home / "err.log").open("ab") as err:
        return subprocess.Popen(argv, stdout=out, stderr=err, start_new_session=True)


def done(home: Path, *arguments: str) -> tuple[int, Any]:
    code = start(home, *arguments).wait(SECONDS)
    told = (home / "out.json").read_text().splitlines()
    return code, json.loads(told[-1]) if told else None


def until(reached: Callable[[], Any], child: subprocess.Popen[bytes], home: Path) -> None:
    ends = time.monotonic() + SECONDS
    while not reached():
        assert child.poll() is None, (home / "err.log").read_text()[-4000:]
        assert time.monotonic() < ends, "it never came"
        time.sleep(0.05)


def children(home: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((home / "run" / "children.json").read_text())
    return found


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs Linux's /proc")
def test_what_is_left_is_found_by_its_environment_alone(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"],
        stdin=subprocess.PIPE,
        env={**os.environ, "PACELINE_HOME": str(tmp_path)},
    )
    with child:
        assert len(left_of(tmp_path)) == 1
        assert left_of(tmp_path / "other") == []
    assert left_of(tmp_path) == []


@pytest.mark.slow
def test_a_retrain_that_is_interrupted_or_loses_mlflow_ends_soon_and_goes_on(
    tmp_path: Path,
) -> None:
    from tests.toys import toy_target_folder

    target = toy_target_folder(tmp_path / "target", seed=3, spread=0.15)
    home = tmp_path / "home"
    home.mkdir()
    for name in ("train", "evaluation"):
        asked = [Prompt(f"{n}", ({"role": "user", "content": f"{name} {n}"},)) for n in range(40)]
        write_prompts(home / "prompts" / f"{name}.jsonl", asked)
    assert done(home, "init", "toy", str(target))[0] == 0
    assert done(home, "release", "--pairing", "toy")[0] == 0
    line = ("retrain", "--pairing", "toy")

    child = start(home, *line)
    until(lambda: list(home.glob("work/toy/*/responses-*")), child, home)
    known = children(home)
    os.killpg(child.pid, signal.SIGINT)  # what Ctrl-C in a terminal does
    assert child.wait(SOON_SECONDS) == 130
    assert not [name for name, each in known.items() if identity(each["pid"]) == each["identity"]]

    child = start(home, *line)
    until(lambda: list(home.glob("work/toy/*/trial-*/journal.jsonl")), child, home)
    os.kill(children(home)["mlflow"]["pid"], signal.SIGKILL)
    assert child.wait(SOON_SECONDS) == 4
    told = json.loads((home / "out.json").read_text())
    assert "mlflow was ended by SIGKILL" in told["error"]
    assert "again" in told["error"]
    assert_nothing_is_left_of(home)

    code, outcome = done(home, *line)
    assert code in (0, 1, 3), (home / "err.log").read_text()[-4000:]
    assert outcome["version"] == 1, "registered once"
    assert len(list(home.glob("work/toy/*/distil.done.json"))) == 1
