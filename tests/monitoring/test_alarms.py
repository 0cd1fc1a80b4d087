"""The life of alarms: what is told when."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from monitoring.alarms import MOST_AN_HOUR, QUIET_REQUESTS, Alarms, alarm_of
from monitoring.causes import CAUSES
from monitoring.facts import Finding
from monitoring.notices import Notice

HOUR = 3600.0


def finding(
    cause: str = "drift", part: str = "", *, since: float = 90.0, **more: object
) -> Finding:
    made = Finding("p-1", "head", "d" * 64, cause, f"it is {cause}", since, 100, part)
    return replace(made, action=CAUSES[cause].action, **more)  # type: ignore[arg-type]  # fields of it


class Life:
    """Alarms through time; each step goes through JSON, so a restart changes nothing."""

    def __init__(self, **dials: float) -> None:
        self.dials, self.stored, self.requests = dials, Alarms().to_json(), 0

    def step(
        self,
        at: float,
        *findings: Finding,
        requests: int = 0,
        served: tuple[str, ...] | None = ("p-1",),
    ) -> list[str]:
        self.told = self.look(at, *findings, requests=requests, served=served)
        return [f"{one.phase} {one.alarm.cause}" for one in self.told]

    def look(
        self, at: float, *findings: Finding, requests: int, served: tuple[str, ...] | None
    ) -> list[Notice]:
        self.requests += requests
        alarms = Alarms(**self.dials)  # type: ignore[arg-type]  # dials are floats
        alarms.restore(json.loads(json.dumps(self.stored)))
        seen = {"p-1|head": self.requests}
        told = alarms.update(findings, at=at, seen=seen, served=served)
        self.stored, self.open = alarms.to_json(), alarms.open()
        return told


def test_a_cause_is_told_once_while_it_lasts_and_its_figures_go_on() -> None:
    life = Life()
    assert life.step(100.0, finding()) == ["raised drift"]
    first = life.told[0].alarm
    later = finding(since=95.0, statement="it fell further", requests=400)
    assert life.step(160.0, later) == []
    assert [(one.id, one.statement, one.requests) for one in life.open] == [
        (first.id, "it fell further", 400)
    ]
    assert (first.raised, first.since) == (100.0, 90.0)


def test_it_is_over_after_a_while_and_some_requests_without_it() -> None:
    life = Life()
    life.step(100.0, finding())
    assert life.step(110.0) == []
    assert life.step(500.0, requests=QUIET_REQUESTS - 1) == []
    assert life.step(501.0, requests=1) == ["resolved drift"]
    assert life.open == []
    assert "it is drift" in life.told[0].alarm.statement
    assert life.step(600.0) == []


def test_without_requests_nobody_can_say_that_it_is_over() -> None:
    life = Life()
    life.step(100.0, finding())
    assert [life.step(100.0 + hour * HOUR) for hour in (1, 2, 3)] == [[], [], []]


def test_a_pair_that_is_served_no_more_needs_no_requests() -> None:
    life = Life()
    life.step(100.0, finding())
    life.step(110.0, served=("p-2",))
    assert life.step(420.0, served=("p-2",)) == ["resolved drift"]
    assert "not served any more" in life.told[0].alarm.statement


def test_what_detectors_still_say_of_a_pair_that_is_served_no_more_is_over() -> None:
    life = Life()
    life.step(100.0, finding())
    life.step(110.0, finding(), served=("p-2",))
    assert life.step(420.0, finding(), served=("p-2",)) == ["resolved drift"]
    assert life.step(430.0, finding(), served=("p-2",)) == []
    assert life.step(440.0, finding(), served=("p-1",)) == ["again drift"]


def test_what_no_request_decides_is_over_by_the_clock_alone() -> None:
    life = Life()
    life.step(100.0, finding("release_mismatch"))
    life.step(110.0)
    assert life.step(409.0) == []
    assert life.step(411.0) == ["resolved release_mismatch"]


def test_a_short_lull_is_no_end() -> None:
    life = Life()
    life.step(100.0, finding())
    for at in range(200, 2000, 100):
        held = [finding()] if at % 200 else []
        assert life.step(float(at), *held, requests=50) == []


def test_what_comes_back_soon_is_the_same_alarm_and_then_ends_late() -> None:
    life = Life(cooldown_seconds=1800.0)
    life.step(100.0, finding())
    first = life.told[0].alarm.id
    life.step(110.0)
    assert life.step(500.0, requests=50) == ["resolved drift"]
    assert life.step(900.0, finding(since=850.0)) == ["again drift"]
    assert life.told[0].alarm.id == first
    assert "came back 1 times" in life.told[0].alarm.statement
    life.step(910.0)
    assert life.step(1500.0, requests=50) == []  # flapping: it has to stay away for the cooldown
    assert life.step(1600.0, finding()) == []
    life.step(1700.0)
    assert life.step(3501.0, requests=50) == ["resolved drift"]
    assert life.told[0].id == f"{first}.resolved.1"  # another notice than the first


def test_a_draft_that_flaps_all_day_is_told_of_a_few_times() -> None:
    life, told = Life(), 0
    for minute in range(24 * 60):
        held = [finding()] if minute // 10 % 2 else []
        told += len(life.step(60.0 * minute, *held, requests=60))
    assert told <= 8  # raised, over, back, and reminders


def test_what_comes_back_later_is_another_alarm() -> None:
    life = Life(cooldown_seconds=1800.0)
    life.step(100.0, finding())
    first = life.told[0].alarm.id
    life.step(110.0)
    life.step(500.0, requests=50)
    assert life.step(2400.0, finding(since=2390.0)) == ["raised drift"]
    assert life.told[0].alarm.id != first


@pytest.mark.parametrize(("cause", "told"), [("drift", [4, 12, 28, 52, 76]), ("mix_shift", [])])
def test_an_open_alarm_is_told_again_ever_more_rarely_and_a_note_never(
    cause: str, told: list[int]
) -> None:
    life = Life(renotify_seconds=4 * HOUR)
    life.step(100.0, finding(cause))
    again = [hour for hour in range(1, 90) if life.step(100.0 + hour * HOUR, finding(cause))]
    assert again == told


def test_what_another_alarm_explains_waits_until_that_one_is_over() -> None:
    life = Life()
    life.step(100.0, finding("release_mismatch"))
    assert life.step(200.0, finding("release_mismatch"), finding()) == []
    assert life.step(300.0, finding()) == []  # it may yet come back
    assert life.step(610.0, finding()) == ["resolved release_mismatch"]
    assert life.step(620.0, finding()) == ["raised drift"]


def test_a_fall_of_one_slice_that_spreads_is_the_matter_it_was() -> None:
    life = Life()
    tenor = finding(part="adapter=tenor")
    evidence = {"slice.adapter=tenor.estimate": 0.4, "slice.adapter=alto.estimate": 0.5}
    assert life.step(100.0, tenor) == ["raised drift"]
    assert life.step(200.0, finding(evidence=evidence)) == []
    assert life.step(300.0, finding(part="adapter=alto", evidence=evidence)) == []
    assert life.step(400.0, tenor, finding(part="adapter=bass")) == ["raised drift"]
    assert [one.slice for one in life.open] == ["adapter=tenor", "adapter=bass"]


def test_causes_pairs_and_sources_are_matters_of_their_own() -> None:
    life = Life()
    other = replace(finding(), pair="p-2")
    silent = [
        Finding("", "", "", "source_silent", "no answer", 90.0, slice=f"source=http://{host}")
        for host in "ab"
    ]
    told = life.step(100.0, finding(), finding("capacity"), other, *silent, served=("p-1", "p-2"))
    assert sorted(told) == [
        *("raised capacity", "raised drift", "raised drift"),
        *("raised source_silent", "raised source_silent"),
    ]


def test_a_storm_is_told_of_by_a_few_and_one_that_says_so() -> None:
    life = Life()
    storm = [replace(finding(), pair=f"p-{n}") for n in range(300)]
    storm += [replace(finding("dead_draft"), pair="p-worst")]
    told = life.step(100.0, *storm, served=None)
    assert len(told) == MOST_AN_HOUR
    assert told[:2] == ["raised many_alarms", "raised dead_draft"]
    assert "282 more alarms" in life.told[0].alarm.statement
    assert life.step(200.0, *storm, served=None) == []
    assert (
        life.step(100.0 + 2 * HOUR, *storm, served=None).count("raised drift") == MOST_AN_HOUR - 1
    )


def test_a_clock_that_goes_back_ends_and_repeats_nothing() -> None:
    life = Life()
    life.step(10_000.0, finding())
    assert life.step(100.0, finding()) == []
    assert life.step(50.0) == []
    assert life.step(60.0, requests=100) == []
    assert life.step(10_301.0, requests=1) == ["resolved drift"]


def test_what_was_never_told_ends_without_a_word() -> None:
    life = Life()
    storm = [replace(finding(), pair=f"p-{n}") for n in range(30)]
    raised = {one.alarm.pair for one in life.look(100.0, *storm, requests=0, served=None)}
    life.look(110.0, requests=0, served=())
    over = life.look(500.0, requests=0, served=())
    assert {one.alarm.pair for one in over} == raised - {""}


def test_an_id_is_the_same_whenever_it_is_raised() -> None:
    one, other = (alarm_of(finding(), at=at) for at in (100.0, 200.0))
    assert one.id == other.id
