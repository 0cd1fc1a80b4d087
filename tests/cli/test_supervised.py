"""A program that needs servers ends with them, and at once where it is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.home import GONE_SECONDS, LOOK_SECONDS, Borrowed
from cli.supervised import relayed, supervised
from evaluation.endpoints import EndpointError, bound

SLEEPS = [sys.executable, "-c", "import time; time.sleep(60)"]


def test_a_program_is_ended_where_a_server_that_it_needs_is_gone(tmp_path: Path) -> None:
    started: list[int] = []

    def check() -> None:
        if started:
            raise EndpointError("mlflow was ended by SIGKILL while it was needed")

    with (tmp_path / "log").open("wb") as log, pytest.raises(EndpointError, match="mlflow"):
        supervised(SLEEPS, log, check=check, began=started.append)
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)


def test_a_programs_own_exit_code_is_given(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        argv = [sys.executable, "-c", "raise SystemExit(3)"]
        assert supervised(argv, log, check=lambda: None) == 3


def test_what_a_child_prints_comes_out_on_our_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with relayed() as output:
        argv = [sys.executable, "-c", "print('a line')"]
        assert supervised(argv, output, check=lambda: None) == 0
    assert "a line" in capsys.readouterr().err


def test_a_child_is_out_of_reach_of_ctrl_c_in_our_terminal(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log, bound(SLEEPS, log) as child:
        assert os.getpgid(child.pid) != os.getpgid(0)


def test_borrowed_servers_are_missed_only_when_they_stay_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    there: list[dict[str, str]] = [{"mlflow": "http://theirs"}]
    monkeypatch.setattr("cli.home.running", lambda home: there[0])
    borrowed = Borrowed(tmp_path, clock=lambda: now[0])
    borrowed.check()
    there[0] = {}
    now[0] = LOOK_SECONDS
    borrowed.check()  # slow for a moment
    there[0] = {"mlflow": "http://theirs"}
    now[0] = GONE_SECONDS
    borrowed.check()
    there[0] = {}
    now[0] = GONE_SECONDS * 2 + LOOK_SECONDS
    with pytest.raises(EndpointError, match="run this command again"):
        borrowed.check()


def test_a_stopped_terminal_write_does_not_hold_a_child(tmp_path: Path) -> None:
    told = "import signal; print(signal.getsignal(signal.SIGTTOU) is signal.SIG_IGN)"
    log = tmp_path / "log"
    with log.open("wb") as output, bound([sys.executable, "-c", told], output) as child:
        assert child.wait(60) == 0
    assert log.read_text().strip() == "True"


def test_sigterm_ends_a_supervised_program_with_its_children(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from cli.exits import ended_by_sigterm\n"
        "from cli.supervised import supervised\n"
        "argv = [sys.executable, '-c', 'import os, time; print(os.getpid(), flush=True); "
        "time.sleep(60)']\n"
        "with ended_by_sigterm():\n"
        "    supervised(argv, sys.stdout, check=lambda: None)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(60) == 143
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
