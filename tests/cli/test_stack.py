"""One home, one stack; and nothing of a user's own servers leaks into it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cli.stack import HomeInUse, Stack

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
