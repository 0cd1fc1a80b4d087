"""`resume` closes what the loop opened to call a person."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from cli.main import app
from configuration.limits import Limits
from configuration.settings import Pairing
from configuration.writing import write_default
from flows.ledger import entries, note
from flows.restraint import may_turn, needs_person


def test_what_was_counted_until_now_counts_no_more(tmp_path: Path) -> None:
    write_default(tmp_path / "paceline.toml", {"line": Pairing()})
    limits = Limits(failed_candidates=1, turns_a_day=1)
    failed = {"release": "r", "phase": "FAIL", "version": 1, "promoted": False, "seconds": 1.0}
    note(tmp_path, "1", "ended", "line", **failed)
    note(tmp_path, "2", "answered", "line", kinds=["roll_back"], cause="dead_draft")
    now = entries(tmp_path)[-1]["at"]
    assert needs_person(entries(tmp_path), limits, release="r")
    assert may_turn(entries(tmp_path), limits, now=now)
    asked = ["resume", "--pairing", "line", "--home", str(tmp_path), "--json"]
    told = CliRunner().invoke(app, [*asked, "--reason", "looked at it"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["reason"] == "looked at it"
    assert needs_person(entries(tmp_path), limits, release="r") == ""
    assert may_turn(entries(tmp_path), limits, now=now) == ""
    other = ["resume", "--pairing", "gone", "--home", str(tmp_path)]
    assert CliRunner().invoke(app, other).exit_code == 2
