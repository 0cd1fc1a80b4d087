"""What can be known to be wrong is said at once, and not after hours of work or as a yes."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.demo import _same_demo
from cli.main import app
from configuration.prompts import write_prompts
from evaluation.samples import Conditions
from flows.steps import write_json
from speculation.records import Prompt
from tests.toys import toy_target_folder


def paceline(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(map(str, arguments)))
    return done.exit_code, done.output


def home_of(folder: Path, *, broken: bool) -> Path:
    """A home whose evaluation prompts are missing, or broken at line 2."""
    target = toy_target_folder(folder / "target")
    home = folder / "home"
    assert paceline("init", "toy", target, "--home", home)[0] == 0
    asked = [Prompt(str(n), ({"role": "user", "content": "fox"},)) for n in range(3)]
    write_prompts(home / "prompts" / "train.jsonl", asked)
    if broken:
        lines = (home / "prompts" / "train.jsonl").read_text().splitlines()
        lines[1] = '{"id": 5'
        (home / "prompts" / "evaluation.jsonl").write_text("\n".join(lines))
    return home


@pytest.mark.parametrize(("broken", "named"), [(False, "evaluation.jsonl"), (True, "line 2")])
def test_retrain_reads_every_prompt_before_it_starts_anything(
    tmp_path: Path, broken: bool, named: str
) -> None:
    home = home_of(tmp_path, broken=broken)
    code, told = paceline("retrain", "--pairing", "toy", "--home", home, "--json")
    assert (code, named in told) == (2, True), told
    assert not (home / "mlflow").exists()


def test_retrain_refuses_prompts_for_an_adapter_before_it_starts_anything(tmp_path: Path) -> None:
    home = home_of(tmp_path, broken=False)
    asked = [Prompt("law", ({"role": "user", "content": "fox"},), adapter="law")]
    write_prompts(home / "prompts" / "evaluation.jsonl", asked)
    code, told = paceline("retrain", "--pairing", "toy", "--home", home, "--json")
    assert (code, "the adapter 'law'" in told, "table `adapters`" in told) == (2, True, True)
    assert not (home / "mlflow").exists()


def test_a_folder_without_weights_is_no_target_and_no_draft(tmp_path: Path) -> None:
    whole = toy_target_folder(tmp_path / "whole")
    bare = toy_target_folder(tmp_path / "bare")
    (bare / "model.safetensors").unlink()
    assert paceline("check", whole, "ngram")[0] == 0
    for pair in ((bare, "ngram"), (whole, bare)):
        code, told = paceline("check", *pair)
        assert code == 2, told


def test_serve_says_what_cannot_be_served_and_no_address(tmp_path: Path) -> None:
    bare = toy_target_folder(tmp_path / "bare")
    for given, said in ((("--draft", tmp_path / "none"), "no folder"), ((), "safetensors")):
        code, told = paceline("serve", bare, "--port", "0", "--json", *given, "--home", tmp_path)
        assert (code, said in told, "listening" in told) == (2, True, False), told
        (bare / "model.safetensors").unlink(missing_ok=True)


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "model.safetensors", "generation_config.json"]
)
def test_a_broken_file_of_a_model_folder_is_named(tmp_path: Path, name: str) -> None:
    whole = toy_target_folder(tmp_path / "whole")
    broken = shutil.copytree(whole, tmp_path / "broken") / name
    broken.write_text("{")
    for command in (
        ("fingerprint", broken.parent),
        ("check", broken.parent, "ngram"),
        ("check", whole, broken.parent),
    ):
        code, told = paceline(*command)
        assert (code, str(broken) in told) == (2, True), told


@pytest.mark.parametrize(
    "written",
    [
        b"",
        b"x",
        b"{}",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b'{"format": "paceline report 1", "conditions": 3}',
        json.dumps(
            {
                "format": "paceline report 1",
                "conditions": {field.name: math.nan for field in fields(Conditions)},
                **{"tokenizer": "words", "prompts": [], "requests": []},
            }
        ).encode(),
    ],
)
def test_a_file_that_is_no_report_is_named(tmp_path: Path, written: bytes) -> None:
    report = tmp_path / "report.json"
    report.write_bytes(written)
    code, told = paceline("gate", report)
    assert (code, str(report) in told) == (2, True), told


def test_a_file_that_holds_no_prompts_is_named(tmp_path: Path) -> None:
    target, file = toy_target_folder(tmp_path / "target"), tmp_path / "prompts.jsonl"
    file.write_text("{}\n")
    given = (target, "--draft", "ngram", "--prompts", file)
    for command in (("evaluate", *given, "--out", tmp_path), ("bench", "engine", *given)):
        code, told = paceline(*command)
        assert (code, f"{file}: 1 fault" in told) == (2, True), told


@pytest.mark.parametrize("target", ["org/a-model", "file"])
def test_a_pairing_is_of_a_folder_that_is_there(tmp_path: Path, target: str) -> None:
    (tmp_path / "file").touch()
    given = tmp_path / target if target == "file" else target
    code, told = paceline("init", "toy", given, "--home", tmp_path / "home", "--json")
    assert (code, f"got {given}" in told, "hf download" in told) == (2, True, True), told
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("draft", ["ngrm", "none"])
def test_a_draft_that_is_none_is_told_which_there_are(tmp_path: Path, draft: str) -> None:
    (tmp_path / "prompts.jsonl").touch()
    given = ("--prompts", tmp_path / "prompts.jsonl", "--json")
    for command in (
        ("evaluate", tmp_path, "--draft", draft, "--out", tmp_path, *given),
        ("bench", "engine", tmp_path, "--draft", draft, *given),
        *((("check", tmp_path, draft, "--json"),) if draft != "none" else ()),
    ):
        code, told = paceline(*command)
        assert (code, "wanted `ngram`" in told) == (2, True), told


@pytest.mark.parametrize("command", ["release", "status"])
def test_a_mistyped_pairing_is_refused_where_others_are_configured(
    tmp_path: Path, command: str
) -> None:
    home = home_of(tmp_path, broken=True)
    code, told = paceline(command, "--pairing", "tyo", "--home", home, "--json")
    assert (code, "tyo" in told) == (2, True), told


@pytest.mark.parametrize(
    "command", [("promote", "1"), ("rollback",), ("retrain",), ("release", ".")]
)
def test_a_name_that_can_be_no_pairing_starts_nothing(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    code, told = paceline(*command, "--pairing", "a b", "--home", tmp_path)
    assert code == 2
    assert "'a b'" in told
    assert list(tmp_path.iterdir()) == []


def test_options_that_could_not_be_used_do_not_bind_a_home(tmp_path: Path) -> None:
    _same_demo(tmp_path, {"target": "/wrong"})
    _same_demo(tmp_path, {"target": "/right"})
    write_json(tmp_path / "targets" / "release-1" / "config.json", {})
    with pytest.raises(ValueError, match="was begun with"):
        _same_demo(tmp_path, {"target": "/other"})
    assert json.loads((tmp_path / "demo" / "options.json").read_text()) == {"target": "/right"}
