"""The doctor looks at everything, changes nothing, and says what to do."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli import checks, doctor
from cli.checks import Check
from cli.main import app
from configuration.hooks import HookListener
from configuration.prompts import write_prompts
from configuration.serving import Serving
from configuration.settings import Pairing, Settings
from configuration.sources import Source
from configuration.writing import write_default
from evaluation.endpoints import free_port
from evaluation.policy import Policy
from speculation.records import Prompt
from tests.registry import tiny


def question(text: str) -> tuple[dict[str, str], ...]:
    return ({"role": "user", "content": text},)


@pytest.fixture
def line(tmp_path: Path) -> Pairing:
    """A pairing with all that it needs."""
    target = tiny.target(tmp_path / "target")
    for name, count in (("train", 3), ("evaluation", 2)):
        prompts = [Prompt(f"{n}", question(f"{name} {n}")) for n in range(count)]
        write_prompts(tmp_path / f"{name}.jsonl", prompts)
    return Pairing(
        target=str(target),
        train_prompts=tmp_path / "train.jsonl",
        evaluation_prompts=tmp_path / "evaluation.jsonl",
        policy=Policy(prompts=2, minimum_prompts=2),
    )


def bad(found: list[Check]) -> list[str]:
    return [one.found for one in found if not one.ok]


def test_a_home_that_has_what_it_needs_is_well_and_nothing_is_made(
    tmp_path: Path, line: Pairing, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    write_default(home / "paceline.toml", {"docs": line})
    monkeypatch.setattr(checks, "SPACE_BYTES", 1)
    monkeypatch.setenv("PACELINE_SERVING__PORT", "0")
    result = CliRunner().invoke(app, ["doctor", "--home", str(home), "--json"])
    told = json.loads(result.stdout)
    assert [row for row in told["checks"] if not row["ok"]] == []
    assert (result.exit_code, told["ok"]) == (0, True)
    names = {row["name"] for row in told["checks"]}
    assert {"libraries", "disk", "device", "registry", "prefect", "docs: target"} <= names
    assert [path.name for path in home.iterdir()] == ["paceline.toml"]


def test_what_is_not_well_is_named_with_what_to_do(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write_default(home / "paceline.toml", {"docs": Pairing(target="gone")})
    result = CliRunner().invoke(app, ["doctor", "--home", str(home)])
    assert result.exit_code == 1
    assert "NO  docs: target: " in result.stdout
    assert "NO  docs: prompts: " in result.stdout
    assert "to see to" in result.stdout
    assert "home: mlflow" not in result.stdout


def test_a_port_that_somebody_has_is_told(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        settings = Settings(home=tmp_path, serving=Serving(port=port))
        (check,) = checks.ports(settings)
    assert not check.ok
    assert "another serving.port" in check.do


def test_a_listener_without_a_secret_is_told(tmp_path: Path) -> None:
    heard = HookListener(port=free_port())
    for secret, well in ((None, False), ("short", False), ("s" * 20, True)):
        settings = Settings(home=tmp_path, hooks=heard, hook_secret=secret)
        assert [one.ok for one in checks.hooks(settings)] == [well]
    assert checks.hooks(Settings(home=tmp_path)) == []


def test_a_draft_with_other_tokens_and_a_target_that_is_half_there_are_told(
    tmp_path: Path, line: Pairing
) -> None:
    other = tiny.target(tmp_path / "draft")
    tiny.write_tokenizer(other, [*tiny.WORDS[:2], *reversed(tiny.WORDS[2:])])
    settings = Settings(home=tmp_path)
    assert bad(checks.target(settings, line)) == []
    assert bad(checks.target(settings, replace(line, initial_draft=str(other))))
    (Path(line.target) / "model.safetensors").unlink()
    assert "model.safetensors" in bad(checks.target(settings, line))[0]


def test_prompts_that_teach_and_judge_or_are_too_few_are_told(
    tmp_path: Path, line: Pairing
) -> None:
    settings = Settings(home=tmp_path)
    assert bad(checks.prompts(settings, line)) == []
    short = replace(line, policy=Policy(prompts=200), train_prompts=line.evaluation_prompts)
    few, both = bad(checks.prompts(settings, short))
    assert "the policy asks for 200" in few
    assert both == "2 of the prompts that judge are taught too"


def test_each_source_and_server_is_asked(tmp_path: Path) -> None:
    tiny.target(tmp_path / "models" / "1")
    (tmp_path / "models" / "2").mkdir()
    line = Pairing(
        sources=(Source("folder", str(tmp_path / "models")), Source("folder", "gone")),
        servers=(f"http://127.0.0.1:{free_port()}",),
    )
    settings = Settings(home=tmp_path, pairings={"docs": line})
    well, gone = checks.sources(settings, line)
    assert (well.ok, gone.ok) == (True, False)
    assert "shows 2; 2: config.json is not there yet" in well.found
    (server,) = checks.servers(settings, line)
    assert not server.ok


def test_registry_and_prefect_that_are_away_are_told(tmp_path: Path) -> None:
    away = f"http://127.0.0.1:{free_port()}"
    settings = Settings(home=tmp_path, registry=away, prefect=f"{away}/api")
    found = doctor.examined(
        {
            "registry": lambda: checks.registry(settings),
            "prefect": lambda: checks.prefect(settings),
        },
        seconds=60,
    )
    assert all(bad(one) for one in found.values())


def test_a_look_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
    ended = threading.Event()
    hanging: Callable[[], list[Check]] = lambda: [Check("", ended.wait(), "")]  # noqa: E731 # a look
    found = doctor.examined({"a": hanging, "b": lambda: [Check("b", True, "x")]}, seconds=0.1)
    ended.set()
    assert [one.found for one in found["a"]] == ["no answer in time"]
    assert found["b"][0].ok
