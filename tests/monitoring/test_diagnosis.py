"""Facts in, one cause out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from monitoring.diagnosis import alarm_id, diagnose
from monitoring.facts import Excursion, Facts
from speculation.records import Interval

OLD, NEW = "a" * 64, "b" * 64
HEALTHY = Facts(
    pair="p-1",
    drafter="head",
    at=500.0,
    release=OLD,
    expected_release=OLD,
    baseline=Interval(0.70, 0.68, 0.72, 200),
)
DEAD = Excursion(since=400.0, requests=6, level=9.5)
FALLEN = Excursion(since=300.0, requests=130, level=6.1)


def test_healthy_facts_are_no_alarm() -> None:
    assert diagnose(HEALTHY) is None


def test_another_release_is_an_alarm_at_once_and_without_statistics() -> None:
    alarm = diagnose(replace(HEALTHY, release=NEW, mismatched_since=490.0))
    assert alarm is not None
    assert (alarm.cause, alarm.since, alarm.requests) == ("release_mismatch", 490.0, 0)
    assert OLD[:12] in alarm.statement
    assert NEW[:12] in alarm.statement


@pytest.mark.parametrize(("served", "expected"), [(NEW, None), ("", OLD), (OLD, OLD)])
def test_a_digest_that_is_not_known_accuses_nobody(served: str, expected: str | None) -> None:
    assert diagnose(replace(HEALTHY, release=served, expected_release=expected)) is None


def test_the_most_specific_cause_wins() -> None:
    facts = replace(HEALTHY, fallen=FALLEN)
    causes = []
    for more in ({}, {"dead": DEAD}, {"dead": DEAD, "release": NEW}):
        alarm = diagnose(replace(facts, **more))
        assert alarm is not None
        causes.append(alarm.cause)
    assert causes == ["drift", "dead_draft", "release_mismatch"]


def test_a_fall_waits_while_the_draft_may_be_dying() -> None:
    assert diagnose(replace(HEALTHY, fallen=FALLEN, dying=True)) is None


def test_an_alarm_carries_what_it_rests_on() -> None:
    alarm = diagnose(replace(HEALTHY, fallen=FALLEN, recent=Interval(0.58, 0.55, 0.61, 118)))
    assert alarm is not None
    assert alarm.requests == 118  # those the estimate rests on
    assert alarm.evidence["acceptance"] == 0.58
    assert alarm.evidence["acceptance_high"] == 0.61
    assert alarm.evidence["baseline"] == 0.70
    assert alarm.evidence["level"] == 6.1
    assert "0.580 [0.550, 0.610]" in alarm.statement
    assert "expected 0.700" in alarm.statement


def test_an_alarms_id_is_fixed_by_what_it_is_about() -> None:
    first = alarm_id("p-1", "head", "drift", 300.0)
    assert first == alarm_id("p-1", "head", "drift", 300.0)
    others = {
        alarm_id("p-2", "head", "drift", 300.0),
        alarm_id("p-1", "ngram", "drift", 300.0),
        alarm_id("p-1", "head", "dead_draft", 300.0),
        alarm_id("p-1", "head", "drift", 301.0),
    }
    assert len(others | {first}) == 5
