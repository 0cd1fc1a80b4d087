"""What the command line and paceline.toml say becomes the server's settings, or bad usage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import app
from cli.servers import announce
from serving.settings import ServeSettings

ALICE, BOSS = "a" * 20, "b" * 20
TOML = """
[serving]
port = 8100
admin_port = 8101
hosts = ["models.example"]
max_slots = 3
max_context = 200
queue_tokens = 900
body_megabytes = 2
most_messages = 40
connections = 50
poll_seconds = 60.0
probe_seconds = 600.0
together = "never"
deadline_seconds = 20.0
grace_seconds = 5.0
coalesce_tokens = 4
capture = true
keep_exchanges_days = 0.5
keep_exchanges_megabytes = 7
"""


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[ServeSettings]:
    """What a server would have been asked to be."""
    asked: list[ServeSettings] = []

    def serve(settings: ServeSettings, **rest: Any) -> int:
        asked.append(settings)
        return 0

    monkeypatch.setattr("serving.main.serve", serve)
    return asked


def run(*arguments: object, **environ: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["serve", *map(str, arguments)], env=environ)
    return result.exit_code, result.output


def test_the_file_and_the_environment_say_how_it_serves(
    served: list[ServeSettings], tmp_path: Path
) -> None:
    (tmp_path / "paceline.toml").write_text(TOML)
    secrets = {
        "PACELINE_KEYS": f"alice={ALICE}",
        "PACELINE_ADMIN_KEYS": BOSS,
        "PACELINE_HOOK_SECRET": "h" * 20,
        "PACELINE_SERVING__QUEUE_TOKENS": "800",
    }
    code, output = run(tmp_path, "--home", tmp_path, "--max-slots", 5, **secrets)
    assert code == 0, output
    assert served == [
        ServeSettings(
            home=tmp_path,
            target=tmp_path,
            port=8100,
            admin_port=8101,
            hosts=("models.example",),
            max_slots=5,
            max_context=200,
            queue_tokens=800,
            body_bytes=2 * 2**20,
            most_messages=40,
            connections=50,
            poll_seconds=60,
            probe_seconds=600,
            together=False,
            deadline_seconds=20,
            grace_seconds=5,
            coalesce_tokens=4,
            capture=True,
            keep_exchanges_seconds=43_200,
            keep_exchanges_bytes=7 * 2**20,
            keys={"alice": ALICE},
            admin_keys=(BOSS,),
            hook_secret="h" * 20,
        )
    ]


def test_a_target_is_named_either_way_and_adapters_beside_it(
    served: list[ServeSettings], tmp_path: Path
) -> None:
    adapters = ("--adapter", "law=adapters/law", "--adapter", "tax=adapters/t=1")
    assert run("--target", tmp_path, *adapters, "--home", tmp_path) == (0, "")
    assert run(tmp_path, *adapters, "--home", tmp_path, "--draft", "none") == (0, "")
    assert [one.target for one in served] == [tmp_path, tmp_path]
    assert [one.draft for one in served] == ["ngram", "none"]
    assert served[0].adapters == {"law": Path("adapters/law"), "tax": Path("adapters/t=1")}


def test_a_trial_has_all_of_it_at_one_port(served: list[ServeSettings], tmp_path: Path) -> None:
    (tmp_path / "paceline.toml").write_text("[serving]\nadmin_port = 8101\n")
    trial = (tmp_path, "--trial", "--arm", "none=none", "--home", tmp_path)
    assert run(*trial)[0] == 0
    assert run(tmp_path, "--home", tmp_path)[0] == 0
    assert run(tmp_path, "--home", tmp_path, "--admin-port", "0")[0] == 0
    assert [one.admin_port for one in served] == [None, 8101, None], "0 has it beside the API"


@pytest.mark.parametrize(
    ("given", "environ", "said"),
    [
        (("{t}", "--target", "{t}"), {}, "two targets"),
        (("{t}", "--trial", "--arm", "none=none", "--draft", "none"), {}, "beside --trial"),
        (("--pairing", "a", "--draft", "none"), {}, "beside --pairing"),
        (("{t}", "--adapter", "law"), {}, "NAME=DIR"),
        (("{t}", "--adapter", "a=x", "--adapter", "a=y"), {}, "a name of its own"),
        (("{t}", "--admin-port", "8000", "--port", "8000"), {}, "the port itself"),
        (("{t}",), {"PACELINE_KEYS": f"alice={ALICE}"}, "PACELINE_ADMIN_KEYS"),
        (("{t}",), {"PACELINE_ADMIN_KEYS": "short"}, "5 characters"),
        (("{t}",), {"PACELINE_KEYS": ALICE}, "without a name and a key"),
        (("{t}",), {"PACELINE_HOOK_SECRET": "short"}, "hook secret of 5"),
    ],
)
def test_what_cannot_be_served_is_bad_usage_that_shows_no_secret(
    served: list[ServeSettings],
    tmp_path: Path,
    given: tuple[str, ...],
    environ: dict[str, str],
    said: str,
) -> None:
    (tmp_path / "paceline.toml").write_text("[pairings.a]\n")
    named = (one.format(t=tmp_path) for one in given)
    code, output = run(*named, "--home", tmp_path, "--json", **environ)
    assert code == 2
    assert said in " ".join(json.loads(output.splitlines()[0])["error"].split()), output
    assert ALICE not in output
    assert served == []


@pytest.mark.parametrize(
    ("host", "admin_port", "told"),
    [
        ("127.0.0.1", None, {"server": "http://127.0.0.1:8100"}),
        ("::", None, {"server": "http://127.0.0.1:8100"}),
        ("fd00::7", None, {"server": "http://[fd00::7]:8100"}),
        (
            "0.0.0.0",
            8101,
            {"server": "http://127.0.0.1:8100", "admin": "http://127.0.0.1:8101"},
        ),
    ],
)
def test_where_the_server_and_its_admin_side_answer_is_written_beside_the_homes_own(
    tmp_path: Path, host: str, admin_port: int | None, told: dict[str, str]
) -> None:
    noted = tmp_path / "run" / "stack.json"
    noted.parent.mkdir()
    noted.write_text('{"mlflow": "http://127.0.0.1:9"}')
    asked = ServeSettings(
        home=tmp_path, target=tmp_path, host=host, port=8100, admin_port=admin_port
    )
    announce(tmp_path, asked)
    assert json.loads(noted.read_text()) == {"mlflow": "http://127.0.0.1:9", **told}
