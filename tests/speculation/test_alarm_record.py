"""An alarm as it is stored, by this version and by others."""

from __future__ import annotations

import json
from dataclasses import asdict

from speculation.records import Alarm, Interval


def test_an_alarm_comes_back_as_it_was_stored() -> None:
    alarm = Alarm(
        *("a-1", "p-1", "d" * 64, "drift", "it fell", 10.0, 118),
        evidence={"level": 6.1},
        drafter="head",
        slice="adapter=tenor",
        estimate=Interval(0.58, 0.55, 0.61, 118),
        expected=Interval(0.70, 0.68, 0.72, 200),
        action="retrain",
        raised=12.0,
        code_version="0.1.0",
    )
    assert Alarm.from_json(json.loads(json.dumps(asdict(alarm)))) == alarm


def test_an_older_alarm_and_one_of_a_newer_version_can_be_read() -> None:
    stored = {
        **{"id": "a-1", "pair": "p-1", "release": "d", "cause": "drift", "statement": "it fell"},
        **{"since": 10.0, "requests": 3, "evidence": {"level": 6.1}, "colour": "red"},
    }
    assert Alarm.from_json(stored) == Alarm(
        "a-1", "p-1", "d", "drift", "it fell", 10.0, 3, {"level": 6.1}
    )
