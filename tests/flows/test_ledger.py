"""The ledger of what the loop did."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from flows.ledger import entries, note


def test_a_key_is_noted_once(tmp_path: Path) -> None:
    assert note(tmp_path, "a", "began", "docs", release=3)
    assert not note(tmp_path, "a", "ended", "docs")
    assert note(tmp_path, "b", "ended", "docs", seconds=1.5)
    noted = entries(tmp_path)
    assert [(entry["key"], entry["what"]) for entry in noted] == [("a", "began"), ("b", "ended")]
    assert noted[0]["release"] == 3
    assert entries(tmp_path, since=noted[1]["at"]) == noted[1:]


def test_a_line_that_a_killed_writer_left_is_passed_over(tmp_path: Path) -> None:
    note(tmp_path, "a", "began", "docs")
    with (tmp_path / "flows" / "ledger.jsonl").open("ab") as ledger:
        ledger.write(b'{"key": "b", "wh')
    assert note(tmp_path, "b", "ended", "docs")
    assert [entry["key"] for entry in entries(tmp_path)] == ["a", "b"]


def test_many_writers_note_one_key_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        noted = list(pool.map(lambda _: note(tmp_path, "a", "began", "docs"), range(32)))
    assert sum(noted) == 1
    assert len(entries(tmp_path)) == 1


def test_nothing_was_done_where_there_is_no_ledger(tmp_path: Path) -> None:
    assert entries(tmp_path) == []
