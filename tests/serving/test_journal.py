"""The swap journal: what one process did, the next one knows, however the first one ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from serving import journal as steps
from serving.journal import MOST_LINES, Journal


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
    assert [one.step for one in journal.steps][-1] == steps.ABANDONED
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
