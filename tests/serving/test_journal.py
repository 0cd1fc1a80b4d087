"""The swap journal: what one process did, the next one knows, however the first one ended."""

from __future__ import annotations

import errno
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serving import journal as steps
from serving.journal import MOST_LINES, PAIRS_KEPT, Journal


def written(path: Path, *names: str, pair: str = "p-1") -> Journal:
    journal = Journal(path)
    for name in names:
        journal.write(name, pair, "1")
    return journal


def test_the_last_good_pair_is_the_one_switched_to_last(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    written(path, steps.FOUND, steps.SWITCHED, pair="p-1")
    written(path, steps.FOUND, steps.SWITCHED, steps.FREED, pair="p-2")
    journal = written(path, steps.FOUND, steps.FAILED, pair="p-3")
    assert journal.last_good is not None
    assert journal.last_good.pair == "p-2"
    assert journal.switched() == ["p-2", "p-1"]


@pytest.mark.parametrize("step", steps.OPEN)
def test_a_swap_that_was_cut_short_is_said_to_be_abandoned(tmp_path: Path, step: str) -> None:
    path = tmp_path / "journal.jsonl"
    written(path, steps.FOUND, steps.SWITCHED, pair="p-1")
    written(path, *steps.OPEN[: steps.OPEN.index(step) + 1], pair="p-2")
    journal = Journal(path)
    assert (journal.steps[-1].step, journal.steps[-1].why) == (steps.ABANDONED, step)
    assert journal.last_good is not None
    assert journal.last_good.pair == "p-1"
    assert Journal(path).steps == journal.steps  # said once


def test_every_place_at_which_a_write_is_torn_leaves_a_journal_that_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    written(path, steps.FOUND, steps.SWITCHED)
    whole = path.read_bytes()
    for cut in range(0, len(whole), 5):
        path.write_bytes(whole[:cut])
        Journal(path).write(steps.SWITCHED, "p-2", "2")
        journal = Journal(path)
        assert journal.last_good is not None
        assert journal.last_good.pair == "p-2"
        assert all(json.loads(line) for line in path.read_text().splitlines())


def test_a_long_journal_is_shortened_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    line = json.dumps({"at": 1.0, "step": steps.FREED, "pair": "p-1", "version": "1", "why": ""})
    path.write_text(f"{line}\n" * (MOST_LINES + 500))
    Journal(path)
    assert len(path.read_text().splitlines()) == MOST_LINES


def test_what_was_switched_to_outlives_any_number_of_failures(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    for turn in range(PAIRS_KEPT + 2):
        journal.write(steps.SWITCHED, f"p-{turn}", str(turn))
    before = journal.switched()[:PAIRS_KEPT]
    line = {"at": 9e9, "step": steps.FAILED, "pair": "p-bad", "version": "9", "why": ""}
    with path.open("a") as file:
        file.write(f"{json.dumps(line)}\n" * (MOST_LINES + 500))
    for _ in range(2):  # shortened once, and then as it is
        journal = Journal(path)
        assert journal.last_good is not None
        assert journal.last_good.pair == f"p-{PAIRS_KEPT + 1}"
        assert journal.switched() == before
    assert len(path.read_text().splitlines()) == MOST_LINES + PAIRS_KEPT


def full(_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def full_in_the_middle(descriptor: int) -> None:
    """Half a line is written, and cannot be taken back."""
    os.ftruncate(descriptor, os.fstat(descriptor).st_size - 10)
    os.close(descriptor)
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("disk", [full, full_in_the_middle])
def test_a_write_that_failed_costs_no_other_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: Callable[[int], None]
) -> None:
    path = tmp_path / "journal.jsonl"
    journal = written(path, steps.FOUND, steps.SWITCHED, pair="p-1")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", disk)
        with pytest.raises(OSError):  # noqa: PT011  # of the disk, or of the file it has closed
            journal.write(steps.SWITCHED, "p-2", "2")
    assert journal.switched() == ["p-1"]
    if disk is full:
        assert Journal(path).switched() == ["p-1"]
    journal.write(steps.SWITCHED, "p-3", "3")
    assert Journal(path).switched() == ["p-3", "p-1"]


def test_a_full_disk_lets_a_journal_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.jsonl"
    written(path, steps.SWITCHED, pair="p-1")
    with path.open("a") as file:
        line = {"at": 1.0, "step": steps.LOADED, "pair": "p-2", "version": "2"}
        file.write(json.dumps(line) + "\n{torn")
    monkeypatch.setattr(os, "fsync", full)
    journal = Journal(path)
    assert journal.last_good is not None
    assert journal.last_good.pair == "p-1"


def test_harm_is_counted_where_the_pair_was_in_hand_until_one_is_served(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.jsonl"
    written(path, steps.SWITCHED, pair="p-1")
    for reached in (steps.FOUND, steps.DOWNLOADED, steps.LOADED, steps.PROBED):
        written(path, *steps.OPEN[: steps.OPEN.index(reached) + 1], pair="p-2")
        written(path, steps.DOWNLOADED, steps.RESUMED, pair="p-1")  # the start after it
    journal = Journal(path)
    assert journal.harm("p-2", "1") == 2
    assert journal.harm("p-2", "2") == journal.harm("p-1", "1") == 0
    journal.write(steps.FOUND, "p-2", "1")
    journal.write(steps.DOWNLOADED, "p-2", "1")
    journal.write(steps.ABANDONED, "p-2", "1", steps.ASKED)  # a server that was told to end
    journal.write(steps.FAILED, "p-2", "1", "StoreError: away")
    assert Journal(path).harm("p-2", "1") == 2
    journal.write(steps.FAILED, "p-2", "1", "ProbeError: did not answer")
    assert journal.harm("p-2", "1") == 3
    journal.write(steps.SWITCHED, "p-3", "1")
    assert journal.harm("p-2", "1") == 0


@pytest.mark.parametrize(
    "line",
    [
        b'{"at": 1, "step": "switched", "pair": null, "version": "1"}',
        b'{"at": "1", "step": "switched", "pair": "p-9", "version": "1"}',
        b'{"at": 1, "step": "switched", "pair": "p-9", "version": 1}',
        b'{"at": 1, "step": "switched"}',
        b"[1]",
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_a_line_that_is_none_of_ours_is_passed_over(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "journal.jsonl"
    written(path, steps.SWITCHED, pair="p-1")
    with path.open("ab") as file:
        file.write(line + b"\n")
    assert Journal(path).switched() == ["p-1"]


def test_a_line_that_is_on_the_disk_is_written_whatever_fails_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "new" / "journal.jsonl"
    monkeypatch.setattr(steps, "MOST_LINES", 4)
    monkeypatch.setattr(steps, "_sync", full)  # the folder's, and the shortened file's
    journal = Journal(path)
    for turn in range(2 * steps.MOST_LINES + 1):
        journal.write(steps.SWITCHED, f"p-{turn}", "1")
    assert len([one for one in caplog.records if "is not tidied" in one.message]) == 2
    assert journal.last_good == Journal(path).last_good
    assert journal.switched()[0] == f"p-{2 * steps.MOST_LINES}"


def test_what_a_disk_did_not_take_is_not_written_when_the_file_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.jsonl"
    written(path, steps.SWITCHED, pair="p-1")

    class Filling(io.FileIO):
        """Takes half of the first write, and all that comes once that was taken back."""

        fills = True

        def write(self, line: Any) -> int:
            taken, self.fills = bytes(line)[: len(line) // (1 + self.fills)], False
            return super().write(taken)

    def opened(place: Path, mode: str, buffering: int = -1) -> Any:
        raw = Filling(place, mode.replace("b", ""))
        return raw if buffering == 0 else io.BufferedWriter(raw)

    journal = Journal(path)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", opened)
        with pytest.raises(OSError, match="No space"):
            journal.write(steps.SWITCHED, "p-2", "2")
    assert Journal(path).switched() == ["p-1"]
