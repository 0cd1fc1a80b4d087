"""Behind MLflow's log-in: one setting of ours is shown by MLflow's client, by flows and servers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from cli.home import settings_of
from flows.line import settings, store
from registry.credentials import NAME, PASSWORD, TOKEN, header
from registry.schema import prepare_database
from registry.store import Store
from tests.registry.conftest import mlflow_server
from tests.registry.test_deployments import ADMIN, AUTH, READER
from tests.serving.real_registry import PATIENCE_SECONDS, ROOT, Registry, environment, paceline
from tests.toys import toy_target_folder

SHOWN = (NAME, PASSWORD, TOKEN)


@pytest.fixture(autouse=True)
def environ(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What commands and flows set in this process is put back afterwards."""
    for variable in SHOWN:
        monkeypatch.setenv(variable, "an earlier one's")
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    monkeypatch.delenv("PACELINE_REGISTRY_TOKEN", raising=False)


def shown() -> dict[str, str]:
    return {variable: os.environ[variable] for variable in SHOWN if variable in os.environ}


@pytest.mark.parametrize("by", ["a command", "a flow"])
@pytest.mark.parametrize(
    ("secret", "expected"),
    [
        ("ann:a:pass word", {NAME: "ann", PASSWORD: "a:pass word"}),
        ("abc.def", {TOKEN: "abc.def"}),  # MLflow would show a name that it found rather than this
        ("", dict.fromkeys(SHOWN, "an earlier one's")),
    ],
)
def test_mlflows_client_shows_the_secret_that_paceline_was_given_and_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, by: str, secret: str, expected: dict[str, str]
) -> None:
    if secret:
        (tmp_path / "secret").write_text(f"{secret}\n")
        monkeypatch.setenv("PACELINE_REGISTRY_TOKEN_FILE", str(tmp_path / "secret"))
    if by == "a command":
        settings_of(tmp_path)
    else:
        store(settings())
    assert shown() == expected


@pytest.mark.slow  # a real MLflow server, and commands in processes of their own
def test_commands_and_a_server_log_in_with_what_paceline_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home := tmp_path / "mlflow").mkdir()
    (config := home / "auth.ini").write_text(
        AUTH.format(folder=home, password=ADMIN.partition(":")[2])
    )
    database = f"sqlite:///{home / 'mlflow.db'}"
    prepare_database(database)
    secrets = {"MLFLOW_AUTH_CONFIG_PATH": str(config), "MLFLOW_FLASK_SERVER_SECRET_KEY": "k" * 32}
    with mlflow_server(database, home, "--app-name", "basic-auth", **secrets) as url:
        name, _, password = READER.partition(":")
        httpx.post(
            f"{url}/api/2.0/mlflow/users/create",
            json={"username": name, "password": password},
            headers=header(ADMIN),
        ).raise_for_status()
        monkeypatch.setenv("PACELINE_REGISTRY_TOKEN", ADMIN)
        settings_of(tmp_path)  # from now on this process is the administrator
        registry = Registry(url, home, Store(url, locks=tmp_path / "locks"))
        pair = registry.add("guarded", toy_target_folder(tmp_path / "target", layers=1), "ngram")

        def told(secret: str, *words: str) -> tuple[int, str]:
            done = subprocess.run(
                [sys.executable, "-m", "cli.main", *words, "--pairing", "guarded"]
                + ["--registry", url, "--home", str(tmp_path / "home")],
                env=environment() | {"PACELINE_REGISTRY_TOKEN": secret},
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=PATIENCE_SECONDS,
                check=False,
            )
            return done.returncode, done.stdout + done.stderr

        code, words = told(READER, "promote", "1")
        assert code == 4, words
        assert "refused" in words
        assert password not in words
        code, words = told(ADMIN, "promote", "1")
        assert code == 0, words
        code, words = told(READER, "status")
        assert code == 0, words
        assert "champion" in words
        given = {"PACELINE_REGISTRY_TOKEN": READER}
        with paceline(tmp_path / "host", url, "guarded", given) as server:
            server.until_served(pair)
