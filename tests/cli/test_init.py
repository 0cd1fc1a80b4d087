"""`paceline init` writes what its flags say, asks for what is missing, and spoils no file."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli import setup
from cli.main import app
from configuration.reading import read_settings
from configuration.sources import Source
from tests.cli.test_commands import run
from tests.registry import tiny


def test_flags_become_dials(tmp_path: Path) -> None:
    home = tmp_path / "home"
    code, told, errors = run(
        *("init", "docs", "--home", home, "--on-release", "at_once", "--approval", "person"),
        *("--from", "mlflow:summariser@production", "--from", f"folder:{tmp_path}"),
        *("--from", "hub:me/small@v2", "--from", "store:s3://models/docs"),
        *("--server", "http://127.0.0.1:8000", "--registry", "https://mlflow.example"),
        *("--prefect", "https://prefect.example/api"),
    )
    assert (code, told and told["written"]) == (0, True), errors
    settings = read_settings(home, environ={})
    assert settings.registry == "https://mlflow.example"
    assert settings.prefect == "https://prefect.example/api"
    line = settings.pairing("docs")
    assert line.sources == (
        Source("mlflow", "summariser", alias="production"),
        Source("folder", str(tmp_path)),
        Source("hub", "me/small", revision="v2"),
        Source("store", "s3://models/docs"),
    )
    assert (line.target, line.on_release, line.limits.approval) == ("", "at_once", "person")
    assert line.servers == ("http://127.0.0.1:8000",)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (("--from", "ftp:x"), "wanted one of mlflow"),
        (("--from", "hub:small"), "owner/name"),
        (("--from", "folder:x", "--server", "me"), "http(s) URLs"),
        (("--from", "folder:x", "--registry", "me"), "an http(s) URL"),
        ((), "wanted it"),
    ],
)
def test_what_can_be_none_is_refused_and_nothing_is_written(
    tmp_path: Path, given: tuple[str, ...], wanted: str
) -> None:
    code, _, errors = run("init", "docs", *given, "--home", tmp_path / "home")
    assert code == 2
    assert wanted in " ".join(errors.split())
    assert not (tmp_path / "home").exists()


def test_a_registry_for_a_file_that_stands_is_for_a_person_to_write(tmp_path: Path) -> None:
    target = tiny.target(tmp_path / "target")
    assert run("init", "docs", target, "--home", tmp_path)[0] == 0
    before = (tmp_path / "paceline.toml").read_text()
    code, _, errors = run(
        "init", "code", target, "--home", tmp_path, "--registry", "https://mlflow.example"
    )
    assert (code, "write it there as `registry`" in " ".join(errors.split())) == (2, True)
    assert (tmp_path / "paceline.toml").read_text() == before


def test_on_a_terminal_what_was_left_out_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tiny.target(tmp_path / "target")
    asked = []

    def prompt(question: str) -> str:
        asked.append(question)
        return ["docs", str(target)][len(asked) - 1]

    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("typer.prompt", prompt)
    monkeypatch.setattr(setup, "sys", type("", (), {"stdin": Terminal(), "stdout": Terminal()}))
    result = CliRunner().invoke(app, ["init", "--home", str(tmp_path / "home")])
    assert result.exit_code == 0, result.output
    assert len(asked) == 2
    assert read_settings(tmp_path / "home", environ={}).pairing("docs").target == str(target)
