"""The series: whole lines, read once, whatever killed the writer."""

from __future__ import annotations

from pathlib import Path

from monitoring.series import Entry, Gauge, Mark, Point, Throughput, append, read_series
from speculation.records import Interval

POINT = Point(
    20.0,
    "p-1",
    "head",
    "d" * 64,
    4,
    50,
    Interval(0.7, 0.66, 0.74, 50),
    None,
    2.9,
    (0.8, None, 0.6),
    Interval(17.0, 16.0, 18.0, 50),
    88.0,
)
ENTRIES: list[Entry] = [
    Mark(10.0, "release", "r1"),
    POINT,
    Throughput(21.0, "p-1", "head", 2.0, 4, 0, 0.71, 96.0),
    Mark(30.0, "swap", "p-2", "p-2"),
]


def test_what_is_appended_is_read_back_by_time(tmp_path: Path) -> None:
    path = tmp_path / "monitoring" / "series.jsonl"
    append(path, ENTRIES[2:])
    append(path, [])
    append(path, ENTRIES[:2])
    assert read_series(path) == ENTRIES


def test_no_file_is_an_empty_series(tmp_path: Path) -> None:
    assert read_series(tmp_path / "none.jsonl") == []


def test_a_torn_last_line_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "series.jsonl"
    append(path, ENTRIES)
    whole = path.read_bytes()
    last = whole.splitlines(keepends=True)[-1]
    for cut in range(1, len(last)):
        path.write_bytes(whole[:-cut])
        append(path, [Mark(40.0, "alarm", "drift", "p-2")])
        found = read_series(path)
        assert found[:3] == ENTRIES[:3]
        assert found[-1] == Mark(40.0, "alarm", "drift", "p-2")
        assert len(found) == (5 if cut == 1 else 4)  # cut by one, only its newline is gone


def test_a_point_written_twice_is_read_once_as_it_was_last(tmp_path: Path) -> None:
    path = tmp_path / "series.jsonl"
    append(path, ENTRIES)
    append(path, ENTRIES)
    assert read_series(path) == ENTRIES


def test_lines_that_are_no_entry_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "series.jsonl"
    path.write_bytes(
        b'{"kind": "other"}\n[1]\n7\n{"at": 1}\n\xff\xfe\n\n{"kind": "mark", "x": 1}\n'
    )
    append(path, ENTRIES)
    assert read_series(path) == ENTRIES


def test_what_two_servers_say_of_themselves_is_kept_apart(tmp_path: Path) -> None:
    said = [Gauge(5.0, "p-1", "head", f"http://{name}", 0.5, 2.5, "gauges") for name in "ab"]
    append(tmp_path / "series.jsonl", said)
    assert read_series(tmp_path / "series.jsonl") == said
