"""The flows of a home are run by one command that needs nothing by hand."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.home import Servers
from cli.main import app
from configuration.quiet import QUIET
from evaluation.endpoints import EndpointError

HERE = {"mlflow": "http://127.0.0.1:9", "prefect": "http://127.0.0.1:8"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a pairing, and servers that were brought up."""

    @contextmanager
    def servers(settings: Any, *, flows: bool) -> Iterator[Servers]:
        assert flows
        monkeypatch.setenv("PREFECT_API_URL", f"{HERE['prefect']}/api")
        yield Servers(HERE["mlflow"], lambda: None)

    monkeypatch.setattr("cli.worker.servers", servers)
    monkeypatch.setattr("cli.worker.running", lambda home: {})
    (tmp_path / "paceline.toml").write_text("[pairings.a]\n")
    return tmp_path


def run(home: Path) -> Any:
    return CliRunner().invoke(app, ["worker", "--home", str(home), "--json"])


def test_a_worker_finds_its_servers_and_keeps_its_state_in_the_home(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[list[str], dict[str, str]]] = []

    def supervised(argv: list[str], output: Any, *, check: Any, environ: dict[str, str]) -> int:
        ran.append((argv, environ))
        second = run(home)
        assert (second.exit_code, "another" in second.stderr) == (2, True)
        return -9

    monkeypatch.setattr("cli.supervised.supervised", supervised)
    done = run(home)
    assert (done.exit_code, "SIGKILL" in done.stderr) == (4, True)
    ((argv, environ),) = ran
    assert argv[1:] == ["-m", "flows.worker", "--home", str(home)]
    assert environ["PREFECT_HOME"] == str(home / "prefect")
    assert environ["PREFECT_API_URL"] == f"{HERE['prefect']}/api"
    assert QUIET.keys() <= environ.keys()
    first = json.loads(done.stdout.splitlines()[0])
    assert first == {"registry": HERE["mlflow"], "prefect": f"{HERE['prefect']}/api"}


def test_a_worker_ends_where_its_servers_were_started_anew(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def supervised(argv: list[str], output: Any, *, check: Any, **rest: Any) -> int:
        for url in (HERE["mlflow"], None, "http://127.0.0.1:7"):  # None: they are away for a moment
            now = {} if url is None else {"mlflow": url}
            monkeypatch.setattr("cli.worker.running", lambda home, now=now: now)
            if url == "http://127.0.0.1:7":
                with pytest.raises(EndpointError, match="started anew"):
                    check()
            check()
        return 0

    monkeypatch.setattr("cli.supervised.supervised", supervised)
    done = run(home)
    assert (done.exit_code, "started anew" in done.stderr) == (4, True)


@pytest.mark.parametrize("missing", ["pairing", "worker"])
def test_a_worker_that_has_nothing_to_do_starts_nothing(
    home: Path, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing == "pairing":
        (home / "paceline.toml").write_text("")
    else:
        monkeypatch.setattr("cli.worker.running", lambda home: {**HERE, "worker": "http://x"})
    done = run(home)
    assert done.exit_code == 2, os.linesep.join((done.stdout, done.stderr))
    assert not (home / "run").exists()
