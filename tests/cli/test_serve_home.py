"""What the README says of a user's own models, command by command, with nothing else running."""

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

import httpx
import pytest

from configuration.prompts import write_prompts
from speculation.records import Prompt

DIALS = """draft = "ngram"
draft_len = 3
[pairings.toy.measurement]
max_tokens = 8
[pairings.toy.policy]
prompts = 20
"""
SECONDS = 240.0


def argv(home: Path, *arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "cli.main", *map(str, arguments), "--home", str(home), "--json"]


def paceline(home: Path, *arguments: str | Path) -> tuple[int, dict[str, Any], str]:
    done = subprocess.run(
        argv(home, *arguments), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    return done.returncode, json.loads(done.stdout.splitlines()[-1]), done.stderr


def until(happened: Callable[[], bool], child: subprocess.Popen[bytes], log: Path) -> None:
    ends = time.monotonic() + SECONDS
    while not happened():
        assert child.poll() is None, log.read_text()
        assert time.monotonic() < ends, log.read_text()
        time.sleep(0.5)


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


@pytest.mark.slow
def test_a_home_is_served_watched_and_shown_with_nothing_else_running(tmp_path: Path) -> None:
    from tests.toys import toy_target_folder

    target = toy_target_folder(tmp_path / "target", seed=3, spread=0.15)
    home = tmp_path / "home"
    asked = [Prompt(f"{n}", ({"role": "user", "content": f"the {n} fox"},)) for n in range(20)]
    write_prompts(home / "prompts" / "evaluation.jsonl", asked)
    assert paceline(home, "init", "toy", target)[0] == 0
    written = (home / "paceline.toml").read_text().partition("[pairings.toy]")[0]
    (home / "paceline.toml").write_text(f'{written}[pairings.toy]\ntarget = "{target}"\n{DIALS}')
    code, released, errors = paceline(home, "release", "--pairing", "toy")
    assert code == 0, errors
    code, _, errors = paceline(home, "retrain", "--pairing", "toy")
    assert code in (0, 1, 3), errors  # how fast the toy is on this machine is not the matter here
    if code != 0:
        forced = ("promote", "1", "--pairing", "toy", "--force", "to serve it")
        code, _, errors = paceline(home, *forced)
        assert code == 0, errors

    log = tmp_path / "serve.log"
    with log.open("wb") as output:
        serving = subprocess.Popen(
            argv(home, "serve", "--pairing", "toy", "--port", "0"),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    watching: subprocess.Popen[bytes] | None = None
    try:
        noted = home / "run" / "stack.json"
        until(lambda: noted.exists() and "server" in json.loads(noted.read_text()), serving, log)
        url = json.loads(noted.read_text())["server"]
        until(lambda: answers(f"{url}/health/ready"), serving, log)
        told = httpx.get(f"{url}/admin/pair", trust_env=False).json()
        assert (told["release"], told["draft_len"]) == (released["release"], 3)

        watching = subprocess.Popen(argv(home, "monitor", "--pairing", "toy"))
        body = {"model": "toy", "max_tokens": 4, "messages": [{"role": "user", "content": "fox"}]}
        answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60, trust_env=False)
        assert answer.status_code == 200
        series = home / "monitoring" / "series.jsonl"
        until(lambda: series.exists() and series.stat().st_size > 0, watching, log)
        code, shown, errors = paceline(home, "status")
        assert code == 0, errors
        assert shown["served"]["release"] == released["release"]
        code, again, errors = paceline(home, "retrain", "--pairing", "toy")  # beside the server
        assert code in (0, 1, 3), errors
    finally:
        for child in filter(None, (watching, serving)):
            if child.poll() is None:
                os.kill(child.pid, signal.SIGTERM)
            child.wait(60)
    assert serving.returncode == 0, log.read_text()
    assert not noted.exists()

    # Its registry can be brought up no more: what it served last is on its disk.
    (home / "mlflow" / "mlflow.db").write_bytes(b"no database")
    with log.open("wb") as output:
        serving = subprocess.Popen(
            argv(home, "serve", "--pairing", "toy", "--port", str(httpx.URL(url).port)),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        until(lambda: answers(f"{url}/health/ready"), serving, log)
        assert httpx.get(f"{url}/admin/pair", trust_env=False).json()["pair"] == told["pair"]
    finally:
        serving.send_signal(signal.SIGTERM)
        serving.wait(60)
    assert serving.returncode == 0, log.read_text()
