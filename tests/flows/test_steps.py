"""Steps are done once, whatever happens in between."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from flows.steps import alone, finished, once, read_json, write_json


def test_a_finished_step_is_not_done_again(tmp_path: Path) -> None:
    calls: list[int] = []

    def work() -> dict[str, Any]:
        calls.append(1)
        return {"answer": len(calls)}

    first = once(tmp_path, "count", {"of": "apples"}, work)
    assert once(tmp_path, "count", {"of": "apples"}, work) == first == {"answer": 1}
    assert calls == [1]


def test_other_inputs_are_other_work(tmp_path: Path) -> None:
    assert once(tmp_path, "name", {"who": "a"}, lambda: {"n": 1}) == {"n": 1}
    assert once(tmp_path, "name", {"who": "b"}, lambda: {"n": 2}) == {"n": 2}
    assert finished(tmp_path, "name") == {"n": 2}


def test_the_order_of_inputs_does_not_matter(tmp_path: Path) -> None:
    once(tmp_path, "step", {"a": 1, "b": 2}, lambda: {"n": 1})
    assert once(tmp_path, "step", {"b": 2, "a": 1}, lambda: {"n": 2}) == {"n": 1}


def test_a_step_that_raises_leaves_no_marker_and_runs_again(tmp_path: Path) -> None:
    def fails() -> dict[str, Any]:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="disk"):
        once(tmp_path, "step", {}, fails)
    assert finished(tmp_path, "step") is None
    assert once(tmp_path, "step", {}, lambda: {"n": 1}) == {"n": 1}


def test_a_marker_cut_short_by_a_crash_counts_as_not_done(tmp_path: Path) -> None:
    (tmp_path / "step.done.json").write_text('{"key": "abc", "resu')
    assert finished(tmp_path, "step") is None
    assert once(tmp_path, "step", {}, lambda: {"n": 1}) == {"n": 1}


def test_readers_see_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_json(path, {"n": 0})
    reader = multiprocessing.get_context("fork").Process(target=_read_many, args=(path,))
    reader.start()
    for number in range(200):
        write_json(path, {"n": number, "filling": "x" * 5000})
    reader.join(20)
    assert reader.exitcode == 0


def _read_many(path: Path) -> None:
    for _ in range(500):
        if read_json(path) is None:
            os._exit(1)
    os._exit(0)


def test_a_lock_is_free_again_when_its_holder_is_killed(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    held = context.Event()

    def hold() -> None:
        with alone(tmp_path / "lock"):
            held.set()
            time.sleep(60)

    holder = context.Process(target=hold)
    holder.start()
    assert held.wait(10)
    assert holder.pid is not None
    waited: list[bool] = []

    def kill() -> None:
        waited.append(True)
        assert holder.pid is not None
        os.kill(holder.pid, signal.SIGKILL)

    with alone(tmp_path / "lock", kill):
        assert waited == [True]
    holder.join(10)


def test_a_disk_that_is_full_keeps_no_half_file_and_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "look.done.json"
    write_json(path, {"n": 0})

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_json(path, {"n": 1})
    assert read_json(path) == {"n": 0}
    assert list(tmp_path.iterdir()) == [path]
