from __future__ import annotations

import json
from pathlib import Path

import pytest

from configuration.faults import ConfigurationError
from configuration.prompts import SHOWN_FAULTS, read_pairing_prompts, read_prompts, write_prompts
from speculation.records import Prompt

GOOD = {"id": "a", "messages": [{"role": "user", "content": "hello"}]}


def write(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    prompts = [
        Prompt("a", ({"role": "user", "content": "déjà\u2028vu"},)),
        Prompt("b", ({"role": "user", "content": "x"},), reference="y", task="t", language="fr"),
    ]
    write_prompts(tmp_path / "deep" / "prompts.jsonl", prompts)
    assert read_prompts(tmp_path / "deep" / "prompts.jsonl") == prompts


def test_blank_lines_are_passed_over(tmp_path: Path) -> None:
    assert [p.id for p in read_prompts(write(tmp_path, "", json.dumps(GOOD), "  "))] == ["a"]


@pytest.mark.parametrize(
    ("line", "got"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[1]", "a JSON list"),
        ('{"messages": [{"role": "user", "content": "x"}]}', "id = None"),
        ('{"id": 3, "messages": [{"role": "user", "content": "x"}]}', "id = 3"),
        ('{"id": "b"}', "messages = nothing"),
        ('{"id": "b", "messages": []}', "messages = a JSON list"),
        ('{"id": "b", "messages": ["x"]}', "messages[0] with a JSON str"),
        ('{"id": "b", "messages": [{"role": "user"}]}', "messages[0] with ['role']"),
        ('{"id": "b", "messages": [{"role": "robot", "content": "x"}]}', "the role 'robot'"),
        ('{"id": "b", "messages": [{"role": "user", "content": 1}]}', "content = a JSON int"),
        (json.dumps({**GOOD, "id": "b", "reference": 1}), "reference = a JSON int"),
        (json.dumps({**GOOD, "id": "b", "prompt": "x"}), "the key 'prompt'"),
        (json.dumps(GOOD), "the id 'a' of line 1 again"),
        (json.dumps({**GOOD, "id": "b\x1b[2J"}), r"id = 'b\x1b[2J' with a control character"),
        (json.dumps({**GOOD, "id": "b", "task": "t\n  PASS"}), r"task = 't\n  PASS' with"),
        (json.dumps({**GOOD, "id": "b", "language": "e\u202en"}), r"language = 'e\u202en' with"),
        (json.dumps({**GOOD, "id": "b", "adapter": "x\u009b1A"}), r"adapter = 'x\x9b1A' with"),
    ],
)
def test_a_bad_line_is_named_by_its_number(tmp_path: Path, line: str, got: str) -> None:
    path = write(tmp_path, json.dumps(GOOD), "", line)
    with pytest.raises(ConfigurationError) as caught:
        read_prompts(path)
    (fault,) = caught.value.faults
    assert fault.key == "line 3"
    assert got in fault.got
    assert fault.wanted
    assert fault.do
    assert str(path) in str(caught.value)


def test_a_pairings_prompts_may_name_its_adapters_and_no_others(tmp_path: Path) -> None:
    lines = [{**GOOD, "id": name or "none", "adapter": name} for name in (None, "law", "tax")]
    path = write(tmp_path, *map(json.dumps, lines))
    found = read_pairing_prompts(path, {"law": "/law", "tax": "/tax"})
    assert [prompt.adapter for prompt in found] == [None, "law", "tax"]
    with pytest.raises(ConfigurationError) as caught:
        read_pairing_prompts(path, ["law"])
    (fault,) = caught.value.faults
    assert (fault.key, fault.got) == ("prompt 'tax'", "the adapter 'tax'")
    assert fault.wanted == "one of law, or none: the pairing has no other"


def test_every_bad_line_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_prompts(write(tmp_path, "{", json.dumps(GOOD), "nonsense"))
    assert [fault.key for fault in caught.value.faults] == ["line 1", "line 3"]


def test_a_file_of_another_format_does_not_flood(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_prompts(write(tmp_path, *["x"] * 500))
    assert len(caught.value.faults) == SHOWN_FAULTS + 1
    assert caught.value.faults[-1].key == "and 480 more"


def test_bytes_that_are_not_text_are_named(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(json.dumps(GOOD).encode() + b'\n{"id": "\xff"}\n')
    with pytest.raises(ConfigurationError, match="line 2.*not UTF-8"):
        read_prompts(path)


def test_a_missing_file_and_an_empty_one_are_bad_input(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nothing there.*a prompt a line: \{\"id\""):
        read_prompts(tmp_path / "none.jsonl")
    with pytest.raises(ConfigurationError, match="an empty file"):
        read_prompts(write(tmp_path, ""))
