"""The commands over real folders, a real registry and a real server; toys for models."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import app
from configuration.prompts import write_prompts
from registry.schema import prepare_database
from registry.store import Store
from registry.tokens import keep_tokens
from speculation.records import Phase, Prompt
from tests.registry import tiny
from tests.registry.conftest import registered


def run(*arguments: str | Path) -> tuple[int, Any, str]:
    """Exit code, what was printed as JSON, and stderr."""
    result = CliRunner().invoke(app, [*(str(argument) for argument in arguments), "--json"])
    printed = [json.loads(line) for line in result.stdout.splitlines()]
    return result.exit_code, printed[-1] if printed else None, result.stderr


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tiny.target(tmp_path / "target")


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "mlflow.db"
    prepare_database(f"sqlite:///{path}")
    return path


@pytest.fixture
def registry(migrated: Path, tmp_path: Path) -> str:
    (tmp_path / "mlflow").mkdir()
    return f"sqlite:///{shutil.copy(migrated, tmp_path / 'mlflow' / 'mlflow.db')}"


def test_a_fingerprint_is_of_content(target: Path, tmp_path: Path) -> None:
    code, first, _ = run("fingerprint", target)
    moved = shutil.copytree(target, tmp_path / "moved")
    assert code == 0
    assert run("fingerprint", moved)[1] == first
    tiny.target(moved, seed=1)
    changed = run("fingerprint", moved)[1]
    assert changed["weights"] != first["weights"]
    assert changed["tokenizer"] == first["tokenizer"]


def test_a_folder_without_weights_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    code, printed, errors = run("fingerprint", tmp_path)
    assert code == 2
    assert "safetensors" in printed["error"]
    assert "safetensors" in errors


def test_a_draft_that_fits_is_told_from_one_that_does_not(target: Path, tmp_path: Path) -> None:
    head = tiny.head(tmp_path / "head")
    keep_tokens(target, head)
    assert run("check", target, head)[:2] == (0, {"ok": True, "reasons": [], "notes": []})
    (head / "config.json").write_text(
        (head / "config.json").read_text().replace('"hidden_size": 8', '"hidden_size": 16')
    )
    code, printed, _ = run("check", target, head)
    assert (code, printed["ok"]) == (1, False)
    assert printed["reasons"]


def test_a_release_is_announced_once(target: Path, tmp_path: Path, registry: str) -> None:
    line = ("--pairing", "docstrings", "--registry", registry, "--home", tmp_path / "home")
    code, first, _ = run("release", target, *line)
    assert (code, first["version"]) == (0, 1)
    assert run("release", target, *line)[1] == first
    tiny.target(target, seed=1)
    assert run("release", target, *line)[1]["version"] == 2


def test_the_configured_target_is_released_where_none_is_named(
    target: Path, tmp_path: Path, registry: str
) -> None:
    home = tmp_path / "home"
    assert run("init", "line", target, "--home", home)[0] == 0
    code, printed, _ = run("release", "--pairing", "line", "--registry", registry, "--home", home)
    assert (code, printed["target"]) == (0, str(target))
    code, _, errors = run("release", "--pairing", "other", "--registry", registry, "--home", home)
    assert code == 2
    assert "'other'" in errors


def test_a_pair_is_promoted_shown_and_rolled_back(
    target: Path, tmp_path: Path, registry: str
) -> None:
    store = Store(registry)
    first = registered(store, target, tmp_path / "first", seed=1)
    second = registered(store, target, tmp_path / "second", seed=2)
    failed = registered(store, target, tmp_path / "third", seed=3, phase=Phase.FAIL)
    late = registered(store, target, tmp_path / "late", seed=4, judged_against=first.version)
    line = ("--pairing", "docstrings", "--registry", registry, "--home", tmp_path)

    assert run("promote", str(first.version), *line)[0] == 0
    code, told, _ = run("promote", str(second.version), *line, "--expect", "0")
    assert (code, told["outcome"]) == (1, "overtaken")
    assert run("promote", str(second.version), *line, "--expect", str(first.version))[0] == 0
    code, told, _ = run("promote", str(late.version), *line)
    assert (code, told["outcome"]) == (1, "overtaken"), "the champion is not what it was judged by"
    code, told, _ = run("promote", str(failed.version), *line)
    assert (code, told["outcome"]) == (1, "refused")
    assert run("promote", "99", *line)[0] == 2

    _, shown, _ = run("status", *line)
    (state,) = shown["pairings"]
    assert [pair["version"] for pair in state["pairs"] if "champion" in pair["aliases"]] == [
        second.version
    ]
    assert (shown["served"], shown["alarms"]) == (None, [])

    code, told, _ = run("rollback", *line)
    assert (code, told["champion"]["version"]) == (0, first.version)
    code, told, _ = run("rollback", *line)
    assert (code, told["champion"]["version"]) == (0, late.version)
    code, told, _ = run("rollback", *line)
    assert (code, told["outcome"]) == (1, "refused")


def test_status_reads_well(target: Path, tmp_path: Path, registry: str) -> None:
    registered(Store(registry), target, tmp_path / "first")
    arguments = ["status", "--pairing", "docstrings", "--registry", registry]
    result = CliRunner().invoke(app, [*arguments, "--home", str(tmp_path)])
    assert result.exit_code == 0
    assert "docstrings: champion none yet" in result.stdout
    assert "PASS" in result.stdout
    assert "0.610" in result.stdout


def test_a_registry_that_is_away_is_a_fault(tmp_path: Path) -> None:
    away = ("--registry", "http://127.0.0.1:9", "--home", tmp_path)
    code, _, errors = run("promote", "1", "--pairing", "docstrings", *away)
    assert code == 4
    assert "does not answer" in errors


def test_a_host_without_the_registry_s_libraries_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.home.find_spec", lambda name: None)
    (tmp_path / "paceline.toml").touch()
    code, printed, _ = run("promote", "1", "--pairing", "a", "--home", tmp_path)
    assert code == 4
    assert "pip install 'paceline[control]'" in printed["error"]
    assert [path.name for path in tmp_path.iterdir()] == ["paceline.toml"]


def test_a_status_of_what_was_never_registered_starts_nothing_and_says_how_to_begin(
    target: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    assert run("init", "line", target, "--home", home)[0] == 0
    code, shown, _ = run("status", "--home", home)
    nothing: dict[str, Any] = {
        "pairing": "line",
        "releases": [],
        "pairs": [],
        "warnings": [],
        "pinned": None,
    }
    assert (code, shown["pairings"]) == (0, [nothing])
    (home / "paceline.toml").write_text("[serving]\n")
    told = CliRunner().invoke(app, ["status", "--home", str(home)])
    assert (told.exit_code, "paceline init" in told.stdout) == (0, True)
    assert [path.name for path in home.iterdir()] == ["paceline.toml"]


def test_a_home_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    code, _, errors = run("status", "--home", tmp_path / "none")
    assert code == 2
    assert "paceline init" in " ".join(errors.split())
    assert not (tmp_path / "none").exists()


def test_a_release_that_is_not_known_is_bad_input(tmp_path: Path, registry: str) -> None:
    home = tmp_path / "home"
    run("init", "line", tmp_path, "--home", home)
    settings = ("--registry", registry, "--home", home)
    (home / "paceline.toml").write_text('prefect = "http://127.0.0.1:9/api"\n[pairings.line]\n')
    for name in ("train", "evaluation"):
        write_prompts(
            home / "prompts" / f"{name}.jsonl", [Prompt("1", ({"role": "user", "content": "x"},))]
        )
    code, _, errors = run("retrain", "--pairing", "line", *settings)
    assert code == 2
    assert "paceline release" in " ".join(errors.split())


@pytest.mark.parametrize("arm", ["candidate", "=x", "a=", "none=none"])
def test_an_arm_is_a_name_and_a_draft(target: Path, tmp_path: Path, arm: str) -> None:
    given = ("--arm", "none=none", "--arm", arm)
    code, _, errors = run("serve", target, "--trial", *given, "--home", tmp_path)
    assert code == 2
    assert "NAME=DRAFT" in errors


def test_serving_nothing_is_bad_input(tmp_path: Path) -> None:
    code, printed, _ = run("serve", "--home", tmp_path)
    assert code == 2
    assert "TARGET" in printed["error"]


def test_a_second_pairing_is_added_and_another_target_for_the_first_is_refused(
    target: Path, tmp_path: Path
) -> None:
    home = ("--home", tmp_path / "home")
    path = tmp_path / "home" / "paceline.toml"
    assert run("init", "one", target, *home)[1]["written"] is True
    first = path.read_text()
    code, told, _ = run("init", "one", target, *home)
    assert (code, told["written"], path.read_text()) == (0, False, first)
    code, _, errors = run("init", "one", tiny.target(tmp_path / "other"), *home)
    assert (code, path.read_text()) == (2, first)
    assert "by hand" in errors
    assert run("init", "two", target, *home)[:2] == (0, {"path": str(path), "written": True})
    assert path.read_text().startswith(first.rstrip())
    code, _, errors = run("serve", "--pairing", "three", *home)
    assert code == 2
    assert "one, two" in errors


@pytest.mark.parametrize(("given", "drafted"), [((), 2), (("--draft-len", "5"), 5)])
def test_a_pairing_is_served_at_the_draft_len_it_configures(
    given: tuple[str, ...], drafted: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[Any] = []

    def serve(settings: Any) -> int:
        served.append(settings)
        return 0

    monkeypatch.setattr("serving.main.serve", serve)
    (tmp_path / "paceline.toml").write_text("[pairings.a]\ndraft_len = 2\n")
    where = ("--registry", "http://127.0.0.1:9", "--home", str(tmp_path))
    for name in ("a", "b"):  # b is another host's
        result = CliRunner().invoke(app, ["serve", "--pairing", name, *where, *given])
        assert result.exit_code == 0, result.output
    assert [settings.draft_len for settings in served] == [drafted, 5 if given else 4]
    assert served[0].registry == "http://127.0.0.1:9"


def test_a_server_of_the_homes_own_registry_is_found_by_who_watches_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[Any] = []
    watched: list[str] = []
    noted = tmp_path / "run" / "stack.json"

    @contextmanager
    def kept(
        home: Path, started: Callable[[], None], *, waited_for: bool
    ) -> Iterator[Callable[[], str]]:
        assert waited_for  # nothing is on this home's disk
        noted.parent.mkdir()
        noted.write_text('{"mlflow": "http://127.0.0.1:9", "prefect": "http://127.0.0.1:8"}')
        started()
        yield lambda: "http://127.0.0.1:9"

    def serve(settings: Any, *, registry: Callable[[], str]) -> int:
        served.append(settings)
        assert registry() == "http://127.0.0.1:9"
        noted_now = json.loads(noted.read_text())
        monkeypatch.setattr("cli.servers.running", lambda home: noted_now)
        assert run("monitor", "--home", tmp_path)[0] == 0
        return 130

    monkeypatch.setattr("cli.keeping.kept", kept)
    monkeypatch.setattr("serving.main.serve", serve)
    monkeypatch.setattr(
        "monitoring.monitor.watch_server", lambda url, home, **rest: watched.append(url)
    )
    (tmp_path / "paceline.toml").write_text("[pairings.a]\n")
    asked = ("--pairing", "a", "--port", "0", "--host", "0.0.0.0", "--home", tmp_path)
    assert run("serve", *asked)[0] == 130
    assert watched == [f"http://127.0.0.1:{served[0].port}"]
    assert served[0].port > 0


def test_a_database_cannot_be_followed(tmp_path: Path, registry: str) -> None:
    code, _, errors = run("serve", "--pairing", "a", "--registry", registry, "--home", tmp_path)
    assert code == 2
    assert "cannot follow" in errors


@pytest.mark.parametrize("server", ["nonsense", "127.0.0.1:8000", "ftp://127.0.0.1"])
def test_a_monitor_is_told_at_once_what_is_no_address(tmp_path: Path, server: str) -> None:
    code, _, errors = run("monitor", "--server", server, "--home", tmp_path)
    assert code == 2
    assert "http(s) URL" in errors


def test_a_monitor_needs_a_server(tmp_path: Path) -> None:
    code, _, errors = run("monitor", "--home", tmp_path)
    assert code == 2
    assert "--server" in errors


def test_a_prompts_file_with_a_broken_line_starts_no_server(target: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"id": "a"}\n')
    arguments = ("--draft", "ngram", "--prompts", prompts, "--out", tmp_path / "out")
    code, printed, _ = run("evaluate", target, *arguments)
    assert code == 2
    assert printed["faults"][0]["key"] == "line 1"
    assert not (tmp_path / "out").exists()


def test_a_draft_that_does_not_fit_is_not_measured(target: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    write_prompts(prompts, [Prompt("a", ({"role": "user", "content": "abc"},))])
    head = tiny.head(tmp_path / "head")
    (head / "config.json").write_text(
        (head / "config.json").read_text().replace('"hidden_size": 8', '"hidden_size": 16')
    )
    arguments = ("--draft", head, "--prompts", prompts, "--out", tmp_path / "out")
    code, printed, _ = run("evaluate", target, *arguments)
    assert (code, printed["compatible"], printed["arm"]) == (1, False, "candidate")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_measured_draft_is_judged_from_its_report(tmp_path: Path) -> None:
    from tests.toys import toy_draft_folder, toy_target_folder

    toy = toy_target_folder(tmp_path / "toy")
    draft = toy_draft_folder(toy, tmp_path / "draft")
    prompts = tmp_path / "prompts.jsonl"
    write_prompts(
        prompts,
        [Prompt(f"{n}", ({"role": "user", "content": f"count to {n}"},)) for n in range(20)],
    )
    given = ("--prompts", prompts, "--out", tmp_path / "out", "--max-tokens", "8")
    code, measured, errors = run("evaluate", toy, "--draft", draft, *given)
    assert code == 0, errors
    by_arm = {row["arm"]: row for row in measured["rows"]}
    assert set(by_arm) == {"candidate", "ngram", "none"}
    assert by_arm["candidate"]["requests"] == 20
    assert by_arm["candidate"]["judged"] > 0
    assert by_arm["candidate"]["exact_match"] == 1.0
    assert (tmp_path / "out" / "report.html").stat().st_size > 1000

    code, judged, _ = run("gate", measured["report"])
    assert (code, judged["phase"]) in [(1, "FAIL"), (3, "INCONCLUSIVE")]  # a random head
    assert judged["report"] == measured["digest"]
    assert "acceptance_floor" in {finding["rule"] for finding in judged["findings"]}

    stored = json.loads(Path(measured["report"]).read_text())
    stored["requests"][0]["counts"]["emitted"] += 1
    Path(measured["report"]).write_text(json.dumps(stored))
    code, _, errors = run("gate", measured["report"])
    assert code == 2
    assert "changed since" in errors


@pytest.mark.parametrize(
    "command",
    [["status"], ["promote", "1", "--pairing", "a"], ["rollback", "--pairing", "a"]],
)
def test_a_mistyped_home_is_named_and_neither_made_nor_filled(
    command: list[str], tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    for name, wrong in (("hoem", "which is not there"), ("empty", "no paceline.toml")):
        code, told, _ = run(*command, "--home", tmp_path / name)
        assert (code, wrong in told["error"], "paceline init" in told["error"]) == (2, True, True)
    assert [*tmp_path.rglob("*")] == [tmp_path / "empty"]
