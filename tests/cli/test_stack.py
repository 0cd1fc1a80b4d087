"""One home, one stack; nothing of a user's own servers leaks into it; a dead child is told."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from cli.demo_wait import wait_for_outcome
from cli.exits import Exit, code_of
from cli.stack import HomeInUse, Stack, past_proxies
from evaluation.endpoints import Endpoint, EndpointError

HOLDER = """
import os, sys, time
from pathlib import Path
from cli.stack import Stack
with Stack(Path(sys.argv[1]), os.environ):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_stack_of_one_home_is_refused_and_says_by_whom(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == "held"
        with pytest.raises(HomeInUse, match=f"in use by process {holder.pid}"), Stack(tmp_path, {}):
            pass
        holder.kill()
        holder.wait()
        with Stack(tmp_path, {}) as again:  # a killed holder does not keep the lock
            assert again.home == tmp_path.resolve()


def test_a_users_own_settings_of_the_libraries_stay_outside(tmp_path: Path) -> None:
    theirs = {"PREFECT_API_URL": "https://prefect.example", "MLFLOW_TRACKING_URI": "https://m"}
    with Stack(tmp_path, {**theirs, "PATH": "/bin"}) as stack:
        given = stack.environ()
    assert "PREFECT_API_URL" not in given
    assert "MLFLOW_TRACKING_URI" not in given
    assert given["PATH"] == "/bin"
    assert given["PREFECT_HOME"] == str(tmp_path / "prefect")
    assert given["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"
    assert given["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert given["NO_PROXY"] == given["no_proxy"] == "127.0.0.1,localhost"


def test_mlflow_keeps_its_webhooks_over_a_restart_and_sends_them_to_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Mapping[str, str]] = []

    def start(stack: Stack, *given: object) -> str:
        started.append(cast("Mapping[str, str]", given[-1]))
        return ""

    monkeypatch.setattr(Stack, "_start", start)
    for _ in range(2):
        with Stack(tmp_path, {}) as stack:
            stack.start_mlflow()
    first, second = started
    assert first == second
    assert first["MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS"] == "true"
    key = tmp_path / "mlflow" / "webhook.key"
    assert first["MLFLOW_WEBHOOK_SECRET_ENCRYPTION_KEY"] == key.read_text()
    assert len(base64.urlsafe_b64decode(key.read_text())) == 32, "a Fernet key"
    assert key.stat().st_mode & 0o777 == 0o600


def test_what_a_user_keeps_from_a_proxy_stays_kept_from_it() -> None:
    once = past_proxies({"NO_PROXY": "corp"})
    assert once["no_proxy"] == "corp,127.0.0.1,localhost"
    assert past_proxies(once) == once


WORKER = [
    sys.executable,
    "-c",
    "import time; print('these are my last words', flush=True); time.sleep(60)",
]


def killed(child: Endpoint) -> None:
    deadline = time.monotonic() + 10
    while "last words" not in child.log.read_text():
        assert time.monotonic() < deadline, "it never spoke"
        time.sleep(0.02)
    os.kill(child.pid, signal.SIGKILL)
    while child.exit_code() is None:
        time.sleep(0.02)


def test_a_wait_for_a_worker_that_is_killed_ends_with_its_log_and_as_a_fault(
    tmp_path: Path,
) -> None:
    with Stack(tmp_path, os.environ) as stack:
        with stack.child("worker", WORKER, ready_url=None) as child:
            stack.check()
            killed(child)
            with pytest.raises(EndpointError, match="worker was ended by SIGKILL") as caught:
                wait_for_outcome(
                    tmp_path / "work",
                    lambda: "retrain:toy:1",
                    told=set(),
                    done=lambda step, result: None,
                    progress=lambda done, total, what: None,
                    hurry=lambda: None,
                    concluded=lambda: None,
                    check=stack.check,
                )
        stack.check()  # one that was ended by us is not missed
    assert str(child.log) in str(caught.value)
    assert "these are my last words" in str(caught.value)
    assert code_of(caught.value) == Exit.FAULT


def test_another_error_carries_the_last_words_of_the_child_that_died(tmp_path: Path) -> None:
    def asked_of_nobody() -> None:
        with Stack(tmp_path, os.environ) as stack:
            stack._start("monitor", WORKER, None, "")
            killed(stack._running["monitor"])
            raise ConnectionError

    with pytest.raises(ConnectionError) as caught:
        asked_of_nobody()
    assert "these are my last words" in "".join(caught.value.__notes__)


def test_a_program_is_recorded_as_soon_as_it_runs_and_its_failure_is_told(tmp_path: Path) -> None:
    program = (
        "import json, os, pathlib, sys, time\n"
        "for _ in range(100):\n"
        "    path = pathlib.Path(sys.argv[1])\n"
        "    known = json.loads(path.read_text()) if path.exists() else {}\n"
        "    if known.get('tune', {}).get('pid') == os.getpid(): sys.exit(0)\n"
        "    time.sleep(0.05)\n"
        "sys.exit(1)\n"
    )
    children = tmp_path / "run" / "children.json"
    with Stack(tmp_path, os.environ) as stack, (tmp_path / "out").open("wb") as output:
        stack.finish("tune", [sys.executable, "-c", program, str(children)], output)
        with pytest.raises(EndpointError, match="tune ended with code 7"):
            stack.finish("tune", [sys.executable, "-c", "raise SystemExit(7)"], output)
