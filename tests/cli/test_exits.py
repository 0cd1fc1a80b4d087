"""Every ending of a command has its exit code, and its words in the right place."""

from __future__ import annotations

import errno
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import typer
from typer.testing import CliRunner

from cli.main import app
from cli.output import printed
from cli.remedies import UNKNOWN, misnamed, named_paths, remedy
from configuration.faults import ConfigurationError, Fault
from configuration.quiet import QUIET
from tests.registry import tiny

ROOT = Path(__file__).parents[2]


def leaves(command: Any, *typed: str) -> Iterator[tuple[str, Any]]:
    """Every command that does something, by what is typed for it."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield " ".join(typed), command
    else:
        for name, one in inner.items():
            yield from leaves(one, *typed, name)


COMMANDS: dict[str, Any] = dict(leaves(typer.main.get_command(app)))


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs `paceline fingerprint` with a fingerprint that raises."""

    def raise_it(error: BaseException, *options: str) -> Any:
        def broken(*args: object, **named: object) -> None:
            raise error

        monkeypatch.setattr("registry.fingerprint.fingerprint", broken)
        return run("fingerprint", tmp_path, *options)

    return raise_it


def test_an_unexpected_exception_is_a_fault_in_a_short_sentence(raising: Any) -> None:
    result = raising(ValueError("deep inside a library"))
    assert result.exit_code == 4
    assert result.stdout == ""
    assert "unexpected ValueError: deep inside a library" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_traceback_is_shown_where_it_is_asked_for(
    raising: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACELINE_DEBUG", "1")
    assert "Traceback" in raising(RuntimeError("x")).stderr


def test_a_caller_s_mistake_is_bad_input_in_our_own_words(raising: Any) -> None:
    error = ConfigurationError("here", [Fault("a.b", "1", "2", "change it")])
    result = raising(error, "--json")
    assert result.exit_code == 2
    assert "a.b: got 1, wanted 2: change it" in result.stderr
    assert json.loads(result.stdout) == {
        "error": "here: 1 fault\n  a.b: got 1, wanted 2: change it",
        "exit": 2,
        "source": "here",
        "faults": [{"key": "a.b", "got": "1", "wanted": "2", "do": "change it"}],
    }


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "x.bin"), "free some space"),
        (OSError(errno.EADDRINUSE, "Address already in use"), "--port"),
        (ModuleNotFoundError("No module named 'mlflow'", name="mlflow"), "paceline[control]"),
    ],
)
def test_a_fault_says_what_to_do(raising: Any, error: Exception, said: str) -> None:
    result = raising(error)
    assert result.exit_code == 4
    assert said in result.stderr


@pytest.mark.parametrize(
    ("code", "place", "wrong"),
    [
        (errno.EPERM, "/sys/x", True),  # the home itself
        (errno.EROFS, "/sys/x/run/lock", True),  # what we make below it
        (errno.ENOTDIR, "/sys", True),  # what it lies in
        (errno.ENOENT, "/sys/x", True),
        (errno.ENOENT, "/sys/x/run/children.json", False),  # ours to have put there
        (errno.EACCES, "/etc/machine-id", False),  # named by nobody
        (errno.ENOSPC, "/sys/x/run/lock", False),  # no fault of the name's
        (errno.EMFILE, "/sys/x", False),
        (errno.ECONNREFUSED, None, False),
    ],
)
def test_a_place_is_bad_input_only_where_the_caller_named_it(
    code: int, place: str | None, wrong: bool
) -> None:
    error = OSError(code, os.strerror(code), place)
    for given in (["status", "--home", "/sys/x"], ["status", "--home=/sys/x"]):
        assert misnamed(error, named_paths(given, {})) is wrong
    assert misnamed(error, named_paths(["status"], {"PACELINE_HOME": "/sys/x"})) is wrong
    assert misnamed(error, named_paths(["status"], {})) is False
    assert remedy(error) != UNKNOWN


def test_an_error_that_has_no_remedy_says_where_to_look(raising: Any) -> None:
    assert "PACELINE_DEBUG=1" in raising(OSError(errno.ENOTTY, "Not a typewriter")).stderr


def test_words_of_our_own_are_told_from_a_slip(raising: Any) -> None:
    from registry.versions import check_name

    ours: dict[str, Any] = {"__name__": "registry.slip"}
    exec("def slip(text): int(text)", ours)
    for broken, code in ((check_name, 2), (ours["slip"], 4)):
        with pytest.raises(ValueError, match=r".") as caught:
            broken("no name")
        result = raising(caught.value)
        assert result.exit_code == code
        assert ("unexpected" in result.stderr) == (code == 4)


def test_the_end_of_a_dead_server_s_log_is_shown(raising: Any) -> None:
    error = RuntimeError("it went away")
    error.add_note("Killed")
    assert "it went away" in (stderr := raising(error).stderr)
    assert "Killed" in stderr


def test_ctrl_c_ends_with_130(raising: Any) -> None:
    assert raising(KeyboardInterrupt()).exit_code == 130


def test_what_a_library_prints_stays_off_the_machine_s_stdout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def noisy(*args: object, **named: object) -> object:
        from registry.compatibility import Compatibility

        print("a library talks")
        return Compatibility(False, ("the tokens differ",))

    monkeypatch.setattr("registry.checking.check", noisy)
    result = run("check", tmp_path, "ngram", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {"ok": False, "reasons": ["the tokens differ"], "notes": []}
    assert "a library talks" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["check"], ["fingerprint", "/no/such/folder"], ["check", "--colour"]],
)
def test_wrong_usage_ends_with_2_and_an_empty_stdout(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check", "--json"], "TARGET"),
        (["--json", "check"], "--json"),
        (["check", "--json", "--colour"], "--colour"),
        (["nonsense", "--json"], "nonsense"),
        (["fingerprint", "/no/such/folder", "--json"], "/no/such/folder"),
        (["promote", "one", "--pairing", "a", "--json"], "VERSION"),
        (["bench", "engine", "--json", "--turns"], "--turns"),
        (["serve", "--trial", "--arm", "a", "--json"], "NAME=DRAFT"),
    ],
)
def test_wrong_usage_is_told_to_programs_on_stdout_and_to_people_on_stderr(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    result = run(*arguments)
    assert result.exit_code == 2
    told = json.loads(result.stdout)  # one object, and nothing else
    assert (set(told), told["exit"], said in told["error"]) == ({"error", "exit"}, 2, True), told
    assert said in result.stderr


def test_a_json_that_is_no_option_is_none() -> None:
    assert run("fingerprint", "/no/such/folder", "--", "--json").stdout == ""


def test_the_commands_of_a_group_are_looked_at_too() -> None:
    assert {"demo", "serve", "bench engine"} <= set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_and_each_of_its_parameters(name: str) -> None:
    result = run(*name.split(), "--help")
    assert (result.exit_code, "--json" in result.stdout) == (0, True)
    command = COMMANDS[name]
    assert len((command.help or "").split()) > 12, "a newcomer needs more than a line"
    assert [p.name for p in command.params if len((p.help or "").split()) < 2] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_help_names_what_a_word_or_a_path_stands_for_in_capitals(name: str) -> None:
    hints = get_type_hints(inspect.unwrap(COMMANDS[name].callback), include_extras=True)
    named = {
        parameter: str(annotated[1].metavar)
        for parameter, hint in hints.items()
        if re.search(r"\b(str|Path)\b", str((annotated := get_args(hint) or (hint,))[0]))
    }
    assert [parameter for parameter, shown in named.items() if not shown.isupper()] == []


@pytest.mark.parametrize("home", ["file/home", "x" * 300, "circle/home"])
def test_a_home_that_cannot_be_made_is_bad_input_that_is_named(tmp_path: Path, home: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    result = run("init", "line", tmp_path, f"--home={tmp_path / home}", "--json")
    assert result.exit_code == 2
    assert str(tmp_path / home.partition("/")[0]) in (said := json.loads(result.stdout)["error"])
    assert UNKNOWN not in said


def test_a_broken_configuration_is_named_before_anything_is_done(tmp_path: Path) -> None:
    (tmp_path / "paceline.toml").write_text("[serving]\nport = 'x'\n")
    result = run("release", tmp_path, "--pairing", "line", "--home", tmp_path)
    assert result.exit_code == 2
    assert "serving.port: got 'x', wanted a whole number" in result.stderr
    assert not (tmp_path / "mlflow").exists()


def test_init_writes_a_file_once(tmp_path: Path) -> None:
    first = run("init", "line", tmp_path, "--home", tmp_path / "home", "--json")
    assert (first.exit_code, json.loads(first.stdout)["written"]) == (0, True)
    again = run("init", "line", tmp_path, "--home", tmp_path / "home", "--json")
    assert (again.exit_code, json.loads(again.stdout)["written"]) == (0, False)
    assert run("init", "Bad Name", tmp_path, "--home", tmp_path).exit_code == 2


def test_the_console_stays_light() -> None:
    code = "import sys, time; t = time.perf_counter(); import cli.main; print(len(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 600  # torch alone brings a thousand


def test_sigterm_unwinds_and_ends_with_143(tmp_path: Path) -> None:
    code = (
        "import sys, time, registry.fingerprint, pathlib\n"
        "def slow(*a, **k):\n"
        "    try:\n"
        "        print('running', flush=True); time.sleep(30)\n"
        "    finally:\n"
        "        pathlib.Path(sys.argv[2], 'unwound').touch()\n"
        "registry.fingerprint.fingerprint = slow\n"
        "from cli.main import app\n"
        "app()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, "fingerprint", str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        while "running" not in child.stdout.readline():
            assert child.poll() is None
        started = time.monotonic()
        os.kill(child.pid, signal.SIGTERM)
        assert child.wait(timeout=10) == 143
    assert time.monotonic() - started < 5
    assert (tmp_path / "unwound").exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("check", "{target}", "ngram"), 4),
        (("check", "{target}", "ngram", "--json"), 4),
        (("check", "--json"), 2),  # wrong usage it is, read or not
    ],
)
def test_a_reader_that_goes_away_is_no_traceback(
    tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    target = tiny.target(tmp_path / "target")
    child = subprocess.Popen(
        [sys.executable, "-m", "cli.main", *(one.format(target=target) for one in arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    child.stdout.close()
    assert child.stderr is not None
    errors = child.stderr.read()
    child.stderr.close()
    assert child.wait(timeout=20) == code
    assert "Traceback" not in errors
    assert "BrokenPipe" not in errors  # neither where what is left is flushed, at the very end


def test_what_nobody_reads_any_more_fails_once() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as out:
        assert [printed(line, out) for line in ("one", "two")] == [False, True]


def test_libraries_are_quiet_before_a_command_loads_them_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found: dict[str, str] = {}
    monkeypatch.setattr(
        "registry.fingerprint.fingerprint", lambda *a, **k: found.update(os.environ)
    )
    for name in QUIET:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRANSFORMERS_VERBOSITY", "info")
    run("fingerprint", tmp_path)
    assert {name: found[name] for name in QUIET} == {**QUIET, "TRANSFORMERS_VERBOSITY": "info"}


@pytest.mark.slow
def test_a_model_is_loaded_without_a_bar(tmp_path: Path) -> None:
    from tests.toys import toy_target_folder

    target = toy_target_folder(tmp_path / "target")
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"id": "1", "messages": [{"role": "user", "content": "fox"}]}\n')
    arguments = ["bench", "engine", str(target), "--draft", "ngram", "--prompts", str(prompts)]
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", *arguments, "--max-tokens", "4", "--turns", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if name not in QUIET},
        check=True,
    )
    assert "Loading weights" not in done.stderr
    assert "runs" in done.stderr  # our own bar


def test_the_help_of_a_flag_names_no_value_for_it() -> None:
    shown = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "120"}).output
    flags = [line for line in shown.splitlines() if "--capture" in line or "--json" in line]
    assert len(flags) == 2
    assert not any("<" in line or "bool" in line.lower() for line in flags), shown
