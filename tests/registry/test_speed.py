"""The bench of identifying reads the same bytes in every way; how fast is what it is run for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app
from registry.errors import FolderError
from registry.folders import weights_of
from registry.speed import AT_ONCE, BASE, ONE_READER, OURS, READING, forget, measure, ways_of
from tests.registry import tiny


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tiny.target(tmp_path / "target")
    tiny.shard(target, tiny.arrays(), 3)
    return target


def ticking(seconds: list[float]) -> Iterator[float]:
    """A clock by which the runs take these seconds, one after the other."""
    now = 0.0
    for taken in seconds:
        yield now
        now += taken
        yield now


def test_ratios_are_within_a_turn_and_every_other_turn_runs_backwards(folder: Path) -> None:
    ran: list[str] = []
    ways = {name: (lambda name=name: ran.append(name)) for name in (BASE, OURS)}
    # base 4 s, ours 2 s; then ours 1 s, base 8 s (a slow moment); then 4 s and 2 s again
    clock = ticking([4, 2, 1, 8, 4, 2])
    base, ours = measure(folder, turns=3, ways=ways, clock=lambda: next(clock))
    assert ran == [BASE, OURS, OURS, BASE, BASE, OURS]
    assert base.ratios == (1, 1, 1)
    assert ours.ratios == (2, 8, 2)
    assert (ours.ratio, base.ratio) == (2, 1)
    total = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    assert ours.gigabytes_per_second == pytest.approx(total / 2 / 1e9)


def test_every_way_is_run_on_the_folders_own_files(folder: Path) -> None:
    assert list(ways_of(folder)) == [BASE, OURS, ONE_READER, READING, AT_ONCE]
    for way in ways_of(folder).values():
        way()
    whole = tiny.target(folder.parent / "whole")
    assert AT_ONCE not in ways_of(whole)  # one file cannot be hashed by two of them
    forget(weights_of(folder))
    with pytest.raises(FolderError):
        ways_of(folder.parent)


def test_the_command_prints_every_way_beside_sha256sum(folder: Path) -> None:
    line = ["bench", "fingerprint", str(folder), "--turns", "1"]
    told = json.loads(CliRunner().invoke(app, [*line, "--cold", "--json"]).stdout)
    assert told["cold"] is True
    assert {speed["name"] for speed in told["speeds"]} == set(ways_of(folder))
    shown = CliRunner().invoke(app, line).stdout
    assert "over sha256sum" in shown
    assert shown.count("1.00 to 1.00") >= 1  # sha256sum's own
