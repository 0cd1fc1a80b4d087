from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from configuration.faults import ConfigurationError, Fault
from configuration.reading import read_settings
from configuration.settings import Pairing, Settings
from configuration.tables import to_record
from configuration.writing import (
    FROM_ELSEWHERE,
    HEADER,
    append_pairing,
    comments,
    default_toml,
    write_default,
)
from evaluation.policy import Policy
from training.recipe import Recipe

PAIRING = '[pairings.docstrings]\ntarget = "targets/small"\n'


def read(tmp_path: Path, text: str, environ: Mapping[str, str] | None = None) -> Settings:
    (tmp_path / "paceline.toml").write_text(text, encoding="utf-8")
    return read_settings(tmp_path, environ=environ or {})


def faults(tmp_path: Path, text: str, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, text, environ)
    assert str(tmp_path / "paceline.toml") in str(caught.value)
    return {
        fault.key: f"got {fault.got}, wanted {fault.wanted}: {fault.do}"
        for fault in caught.value.faults
    }


def test_a_home_without_a_file_has_every_default_and_no_pairing(tmp_path: Path) -> None:
    assert read_settings(tmp_path, environ={}) == Settings(home=tmp_path)


def test_recipes_and_policies_are_the_records_of_their_folders(tmp_path: Path) -> None:
    text = PAIRING + "[pairings.docstrings.recipe]\nepochs = 2\nlearning_rate = 1\n"
    text += "[pairings.docstrings.policy]\nprompts = 80\n"
    pairing = read(tmp_path, text).pairing("docstrings")
    assert pairing.recipe == Recipe(epochs=2, learning_rate=1.0)
    assert isinstance(pairing.recipe.learning_rate, float)
    assert pairing.policy == Policy(prompts=80)
    assert pairing.target == "targets/small"


def test_every_fault_is_named_at_once(tmp_path: Path) -> None:
    found = faults(
        tmp_path,
        'registr = "http://x"\nregistry = "ftp://x"\n'
        "[serving]\nport = 70000\nmax_slots = true\n"
        '[pairings.a]\ntarget = 1\ndraft = "tree"\ndraft_len = "4"\n'
        "[pairings.a.recipe]\nepochs = 1.5\n"
        '[pairings.b]\ntarget = "t"\ndraft_len = 99\n'
        "[pairings.b.policy]\nalpha = 0.7\nprompts = 0\n"
        "[pairings.b.recipe]\nbatch = 0\nlearning_rate = nan\n"
        "[pairings.B]\n",
    )
    assert found == {
        "registr": "got an unknown key, wanted one of registry, prefect, serving, monitoring, "
        "notices, hooks, pairings: did you mean registry?",
        "registry": "got 'ftp://x', wanted an http(s) URL, sqlite:///path/to/mlflow.db or nothing: "
        "change it",
        "serving.port": "got 70000, wanted 0 to 65535: change it",
        "serving.max_slots": "got True, wanted a whole number: "
        "change it, or remove it for the default",
        "pairings.a.target": "got 1, wanted a string: change it, or remove it for the default",
        "pairings.a.draft": "got 'tree', wanted one of 'head', 'ngram', 'none': "
        "change it, or remove it for the default",
        "pairings.a.draft_len": "got '4', wanted a whole number: "
        "change it, or remove it for the default",
        "pairings.a.recipe.epochs": "got 1.5, wanted a whole number: "
        "change it, or remove it for the default",
        "pairings.b.draft_len": "got 99, wanted 1 to 16: change it",
        "pairings.b.recipe.batch": "got 0, wanted at least 1: change it",
        "pairings.B": "got the name 'B', wanted a letter or digit, then at most 62 of a-z, 0-9, - "
        "and _: rename that table",
        "pairings.b.policy.alpha": "got 0.7, wanted above 0, below 0.5: change it",
        "pairings.b.policy.prompts": "got 0, wanted at least 1: change it",
        "pairings.b.recipe.learning_rate": "got nan, wanted a number: "
        "change it, or remove it for the default",
    }


@dataclass(frozen=True)
class Span:
    low: int = 10
    high: int = 20
    step: int = 1

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"got low = {self.low} above high = {self.high}, wanted it below")
        if self.step < 1:
            raise ValueError(f"got step = {self.step}, wanted 1 or more")


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ({"low": 30, "high": 40}, set()),  # low is wrong beside the default of high only
        ({"low": 15, "high": 12}, {"span"}),
        ({"low": 30, "high": 40, "step": 0}, {"span.step"}),
        ({"high": "40", "step": 0}, {"span.high", "span.step"}),
    ],
)
def test_values_are_blamed_alone_only_where_they_are_wrong_alone(
    table: dict[str, object], named: set[str]
) -> None:
    found: list[Fault] = []
    made = to_record(Span, table, key="span", faults=found)
    assert {fault.key for fault in found} == named
    assert (made is None) == bool(named)


def test_a_gain_is_asked_for_at_measured_loads_only(tmp_path: Path) -> None:
    def wrong(gain: str, loads: str) -> dict[str, str]:
        text = "[pairings.a.policy]\n" + gain + "[pairings.a.measurement]\n" + loads
        return faults(tmp_path, text)

    assert wrong("must_gain = [1, 8]\n", "speed_concurrencies = [1, 4]\n") == {
        "pairings.a": "got policy.must_gain = [1, 8] and measurement.speed_concurrencies = [1, 4], "
        "wanted the first among the second, since a gain that nobody measures is never found: "
        "change it"
    }
    assert list(wrong("", "speed_concurrencies = [4]\n")) == ["pairings.a"]
    assert list(wrong("must_gain = [8]\n", "")) == ["pairings.a"]
    text = "[pairings.a.policy]\nmust_gain = [4]\n[pairings.a.measurement]\n"
    right = read(tmp_path, text + "speed_concurrencies = [4, 8]\n").pairing("a")
    assert right.policy.must_gain == (4,)


def test_a_record_s_own_rules_name_the_dial(tmp_path: Path) -> None:
    assert faults(tmp_path, 'registry = "ftp://x"\n') == {
        "registry": "got 'ftp://x', wanted an http(s) URL, sqlite:///path/to/mlflow.db or nothing: "
        "change it"
    }
    assert list(faults(tmp_path, PAIRING + "draft_len = 99\n")) == ["pairings.docstrings.draft_len"]
    assert faults(tmp_path, PAIRING + "[pairings.docstrings.recipe]\nbatch = 0\n") == {
        "pairings.docstrings.recipe.batch": "got 0, wanted at least 1: change it"
    }


@pytest.mark.parametrize(
    ("content", "got"),
    [
        (b"registry = \n", r"Invalid value \(at line 1, .*: mend that line"),
        (b"[pairings\n", "line 1"),
        (b"registry = 'x", r"end of document\), .*: mend its end"),
        (b"registry = '\xff'\n", "not UTF-8"),
    ],
)
def test_a_malformed_file_is_bad_input(tmp_path: Path, content: bytes, got: str) -> None:
    (tmp_path / "paceline.toml").write_bytes(content)
    with pytest.raises(ConfigurationError, match=got) as caught:
        read_settings(tmp_path, environ={"PACELINE_SERVING__PORT": "-1"})
    assert [fault.key for fault in caught.value.faults] == ["the file", "serving.port"]


def test_a_folder_in_the_files_place_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "paceline.toml").mkdir()
    with pytest.raises(ConfigurationError, match="directory"):
        read_settings(tmp_path, environ={})


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        'registry = "http://file"\n[pairings.my-line]\ntarget = "t"\ndraft_len = 3\n',
        {
            "PACELINE_REGISTRY": "http://environment",
            "PACELINE_SERVING__PORT": "0",
            "PACELINE_PAIRINGS__MY_LINE__DRAFT_LEN": "6",
            "PACELINE_PAIRINGS__MY_LINE__RECIPE__LEARNING_RATE": "1e-3",
            "PACELINE_PAIRINGS__MY_LINE__DRAFT": "ngram",
            "PACELINE_PAIRINGS__OTHER__TARGET": "8",
            "PACELINE_HOME": "/elsewhere",
            "PATH": "/bin",
        },
    )
    assert settings.registry == "http://environment"
    assert settings.serving.port == 0
    assert settings.pairing("my-line").draft_len == 6
    assert settings.pairing("my-line").recipe.learning_rate == 1e-3
    assert settings.pairing("my-line").draft == "ngram"
    assert settings.pairing("other").target == "8"


def test_a_wrong_variable_is_named_beside_the_faults_of_the_file(tmp_path: Path) -> None:
    found = faults(
        tmp_path,
        "[serving]\nport = -1\n[pairings.my-line]\n",
        {
            "PACELINE_REGISTY": "x",
            "PACELINE_SERVING": "8000",
            "PACELINE_SERVING__MAX_SLOTS": "many",
            "PACELINE_REGISTRY__URL": "x",
            "PACELINE_": "x",
            "PACELINE_SERVING_PORT": "8001",
            "PACELINE_PAIRINGS__MY_LINE__RECIPE_EPOCHS": "2",
        },
    )
    assert found["PACELINE_SERVING_PORT"].endswith("did you mean PACELINE_SERVING__PORT?")
    epochs = "PACELINE_PAIRINGS__MY_LINE__RECIPE_EPOCHS"
    assert found[epochs].endswith("did you mean PACELINE_PAIRINGS__MY_LINE__RECIPE__EPOCHS?")
    assert found["PACELINE_REGISTY"].endswith("did you mean PACELINE_REGISTRY?")
    assert "a table's name" in found["PACELINE_SERVING"]
    assert found["serving.max_slots"].startswith("got 'many', wanted a whole number")
    assert "PACELINE_REGISTRY__URL" in found
    assert "PACELINE_" in found


def test_a_secret_comes_from_the_environment_or_a_file_and_is_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("hush\n")
    assert read(tmp_path, "", {"PACELINE_REGISTRY_TOKEN": "hush"}).registry_token == "hush"
    settings = read(tmp_path, "", {"PACELINE_REGISTRY_TOKEN_FILE": str(file)})
    assert settings.registry_token == "hush"
    assert "hush" not in repr(settings)
    found = faults(tmp_path, 'registry_token = "hush"\n')
    assert "PACELINE_REGISTRY_TOKEN_FILE" in found["registry_token"]
    assert "hush" not in str(found)


def test_a_secret_s_file_has_to_be_there_and_alone(tmp_path: Path) -> None:
    name = "PACELINE_REGISTRY_TOKEN_FILE"
    assert "No such file" in faults(tmp_path, "", {name: str(tmp_path / "none")})[name]
    (tmp_path / "empty").touch()
    assert "empty" in faults(tmp_path, "", {name: str(tmp_path / "empty")})[name]
    both = {name: str(tmp_path / "empty"), "PACELINE_REGISTRY_TOKEN": "hush"}
    assert "one of the two" in faults(tmp_path, "", both)[name]


def test_the_written_default_reads_as_the_default_and_explains_every_dial(tmp_path: Path) -> None:
    pairing = Pairing(target="targets/small", policy=Policy(prompts=80))
    text = default_toml({"docstrings": pairing})
    assert read(tmp_path, text) == Settings(home=tmp_path, pairings={"docstrings": pairing})
    assert f"\nprompts = 80  # {comments(Policy)['prompts']}\n" in text
    lines = [line.removeprefix("# ") for line in text.splitlines()[HEADER.count("\n") :] if line]
    assert [line for line in lines if not re.search(r"  # .*\w{3}", line)] == []
    written = tomllib.loads("\n".join(lines))
    assert dials(written) == dials(
        asdict(Settings(home=tmp_path, pairings={"docstrings": pairing}))
    )


def dials(table: Mapping[str, Any], key: str = "") -> set[str]:
    """The dotted name of everything in a table that is no table, but what a file never holds."""
    found: set[str] = set()
    for name in table.keys() - {*FROM_ELSEWHERE}:
        inner = table[name]
        found |= dials(inner, f"{key}{name}.") if isinstance(inner, dict) else {key + name}
    return found


def test_uncommenting_a_default_changes_nothing(tmp_path: Path) -> None:
    pairing = Pairing(target="targets/small")
    text = default_toml({"docstrings": pairing})
    lines = [line.removeprefix("# ") if " = " in line else line for line in text.splitlines()]
    assert len(tomllib.loads("\n".join(lines))["pairings"]["docstrings"]["recipe"]) > 5
    assert read(tmp_path, "\n".join(lines)) == read(tmp_path, text)


def test_a_file_that_stands_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "home" / "paceline.toml"
    assert write_default(path, {}) is True
    path.write_text("# mine\n")
    assert write_default(path, {}) is False
    assert path.read_text() == "# mine\n"
    assert [entry.name for entry in path.parent.iterdir()] == ["paceline.toml"]


def test_a_pairing_that_is_not_configured_says_which_are(tmp_path: Path) -> None:
    settings = read(tmp_path, PAIRING)
    assert settings.pairing() == settings.pairing("docstrings")
    with pytest.raises(ConfigurationError, match=r"got 'other', wanted .*docstrings.*name one"):
        settings.pairing("other")
    with pytest.raises(ConfigurationError, match=r"got none, wanted .*'x'.*`paceline init x "):
        Settings(home=tmp_path).pairing("x")
    with pytest.raises(ConfigurationError, match=r"got none \(the file is not there\), wanted a p"):
        Settings(home=tmp_path / "elsewhere").pairing()


def test_paths_start_at_the_home_folder(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    assert settings.path("prompts/x.jsonl") == tmp_path / "prompts" / "x.jsonl"
    assert settings.path("/elsewhere") == Path("/elsewhere")


def test_a_pairing_is_added_to_a_file_that_stands_and_nothing_else_changes(tmp_path: Path) -> None:
    path = tmp_path / "paceline.toml"
    before = '# mine\n[serving]\nport = 9000\n[pairings.a]\ntarget = "t"'
    path.write_text(before)
    append_pairing(path, "b", Pairing(target="/models/b"))
    assert path.read_text().startswith(before)
    settings = read_settings(tmp_path, environ={})
    assert settings.serving.port == 9000
    assert {name: line.target for name, line in settings.pairings.items()} == {
        "a": "t",
        "b": "/models/b",
    }


def test_a_file_that_no_table_can_follow_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "paceline.toml"
    path.write_text('pairings = {a = {target = "t"}}\n')
    with pytest.raises(ConfigurationError, match="tables of their own"):
        append_pairing(path, "b", Pairing(target="/models/b"))
    assert path.read_text() == 'pairings = {a = {target = "t"}}\n'


def test_keys_are_words_of_a_variable_or_a_file_and_are_never_shown(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("alice=k1=x\nbob=k2\n")
    environ = {
        "PACELINE_KEYS_FILE": str(tmp_path / "keys"),
        "PACELINE_ADMIN_KEYS": "k3 k4",
        "PACELINE_HOOK_SECRET": "k5",
        "PACELINE_NOTICE_SECRET": "k6",
    }
    settings = read(tmp_path, "", environ)
    assert settings.keys == {"alice": "k1=x", "bob": "k2"}
    assert settings.operator_headers == {"authorization": "Bearer k3"}
    assert settings.hook_secret == "k5"
    assert settings.notice_secret == "k6"
    assert not re.search("k[1-6]", repr(settings))
    assert read(tmp_path, "").operator_headers == {}


def test_keys_that_cannot_be_read_are_named_by_their_place_and_not_shown(tmp_path: Path) -> None:
    found = faults(tmp_path, 'keys = "x"\n', {"PACELINE_KEYS": "alice=k1 k2 =k3"})
    assert found["PACELINE_KEYS"].startswith("got word 3 without a name and a key")
    assert "secret in the file" in found["keys"]
    assert "k2" not in "".join(found.values())
    assert (
        "'alice' twice"
        in faults(tmp_path, "", {"PACELINE_KEYS": "alice=k1 alice=k2"})["PACELINE_KEYS"]
    )


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ("admin_port = 8000", "serving.admin_port"),
        ("admin_port = 70000", "serving.admin_port"),
        ("queue_tokens = 0", "serving.queue_tokens"),
        ("deadline_seconds = 0.0", "serving.deadline_seconds"),
        ("coalesce_tokens = -1", "serving.coalesce_tokens"),
        ("keep_exchanges_days = -1", "serving.keep_exchanges_days"),
        ("hosts = [1]", "serving.hosts[0]"),
    ],
)
def test_a_dial_of_the_server_out_of_range_is_named(tmp_path: Path, table: str, key: str) -> None:
    assert key in faults(tmp_path, f"[serving]\n{table}\n")
