"""`paceline status` shows what is wrong now, and what was done about it."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from cli.main import app
from monitoring.notices import Notice, Phase
from monitoring.outbox import Outbox
from speculation.records import Alarm


def test_open_alarms_are_shown_with_what_was_done_until_they_are_over(tmp_path: Path) -> None:
    (tmp_path / "paceline.toml").touch()
    outbox = Outbox(tmp_path / "monitoring" / "outbox")
    first, second = (
        Alarm(f"a-{n}", "p-1", "d" * 64, cause, f"it is {cause}", 100.0, 9, action="look")
        for n, cause in ((1, "drift"), (2, "capacity"))
    )
    for alarm in (first, second):
        outbox.put(alarm)
    outbox.delivered("a-1")
    outbox.responded("a-1", action="retrain", done="a retrain of support begins", at=120.0)
    (outbox_file := tmp_path / "monitoring" / "outbox" / "torn.json").write_text("{")
    home = ("--home", str(tmp_path))

    shown = CliRunner().invoke(app, ["status", *home]).stdout
    assert "ALARM drift: it is drift\n  done: a retrain of support begins\n" in shown
    assert "ALARM capacity: it is capacity\n" in shown
    outbox.put(Notice("a-1.resolved", Phase.RESOLVED, 500.0, first))
    told = json.loads(CliRunner().invoke(app, ["status", *home, "--json"]).stdout)
    assert [(one["cause"], one["done"]) for one in told["alarms"]] == [("capacity", "")]
    assert outbox_file.exists()
