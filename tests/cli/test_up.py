"""`paceline up` runs what is not configured elsewhere, keeps it running and ends it in order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cli.up import NAMES, chosen, kept_ports, lines_of
from configuration.settings import Pairing, Settings
from configuration.writing import write_default

SERVER = "http://127.0.0.1:9"


def names(settings: Settings, *only: str, pairing: str | None = None) -> list[str]:
    return [one.name for one in chosen(settings, {}, pairing, only or NAMES)[0]]


def test_what_is_configured_elsewhere_is_not_started_and_the_rest_is_in_its_order(
    tmp_path: Path,
) -> None:
    one = Settings(home=tmp_path, pairings={"line": Pairing()})
    assert names(one) == list(NAMES)
    assert names(one, "worker", "mlflow") == ["mlflow", "worker"]
    away = Settings(
        home=tmp_path,
        registry="http://mlflow.example",
        prefect="http://prefect.example/api",
        pairings={"line": Pairing(servers=(SERVER,))},
    )
    assert names(away) == ["worker", "monitor"]
    programs, environ = chosen(away, {}, None, NAMES)
    assert environ["PREFECT_API_URL"] == environ["PACELINE_PREFECT"] == "http://prefect.example/api"
    assert environ["PACELINE_REGISTRY"] == "http://mlflow.example"
    assert SERVER in programs[-1].argv
    two = Settings(home=tmp_path, pairings={"a": Pairing(), "b": Pairing()})
    assert names(two) == ["mlflow", "prefect", "worker"], "which of them to serve is not said"
    assert names(two, pairing="b") == list(NAMES)


def test_a_program_is_found_where_it_was_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "ports.json"
    first = kept_ports(path, ("mlflow", "prefect"))
    assert kept_ports(path, ("mlflow", "prefect")) == first
    path.write_text("torn")
    assert set(kept_ports(path, ("mlflow",))) == {"mlflow"}


def test_the_servers_keys_are_its_own_and_not_those_of_other_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACELINE_KEYS_FILE", "/keys")
    programs, environ = chosen(
        Settings(home=tmp_path, pairings={"line": Pairing()}), {}, None, NAMES
    )
    assert "PACELINE_KEYS_FILE" not in environ
    told = {one.name for one in programs if "PACELINE_KEYS_FILE" in one.extra}
    assert told == {"worker", "server", "monitor"}


def test_the_screen_has_a_line_for_each_program() -> None:
    told: dict[str, Any] = {
        **{"name": "server", "state": "waits", "seconds": 3671.0, "restarts": 2, "url": SERVER},
        **{"why": "ended with code 1: no such port", "log": "server.log"},
    }
    assert lines_of([told])[1].split() == ["server", "waits", "1:01:11", "2", *told["why"].split()]


@pytest.mark.slow
def test_each_program_that_is_killed_comes_back_and_sigterm_ends_them_all(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    write_default(home / "paceline.toml", {"line": Pairing()})
    environ = {**os.environ, "PACELINE_SERVING__PORT": "0"}
    argv = [sys.executable, "-m", "cli.main", "up", "--home", str(home), "--json"]
    with (
        (tmp_path / "up.log").open("wb") as log,
        subprocess.Popen(argv, env=environ, stdout=log, stderr=subprocess.STDOUT) as command,
    ):
        try:
            pids = until_all_up(home, command)
            for name in NAMES:
                os.kill(pids[name], signal.SIGKILL)
                now = until_all_up(home, command, name, pids[name])
                assert {one: pid for one, pid in now.items() if one != name} == {
                    one: pid for one, pid in pids.items() if one != name
                }, "the others went on"
                pids = now
        finally:
            command.send_signal(signal.SIGTERM)
            assert command.wait(120) == 128 + signal.SIGTERM, (tmp_path / "up.log").read_text()
    assert not (home / "run" / "state.json").exists()
    for pid in pids.values():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def until_all_up(
    home: Path, command: subprocess.Popen[bytes], name: str = "", before: int = 0
) -> dict[str, int]:
    """The process ids once all are up, and `name` is another than `before`."""
    while True:
        assert command.poll() is None, (home.parent / "up.log").read_text()
        found: dict[str, Any] = {}
        if (home / "run" / "state.json").exists():
            programs = json.loads((home / "run" / "state.json").read_text())["programs"]
            found = {one["name"]: one for one in programs}
        if set(found) == set(NAMES) and all(one["state"] == "up" for one in found.values()):
            pids = {one: int(told["pid"]) for one, told in found.items()}
            if pids.get(name) != before:
                return pids
        time.sleep(0.2)
