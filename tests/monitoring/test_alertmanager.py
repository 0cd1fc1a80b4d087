"""What Alertmanager posts, as notices of our own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitoring.alertmanager import MOST_ALERTS, Champion, PayloadError, Taken, read
from monitoring.causes import CAUSES
from monitoring.notices import Phase

AT = 1_800_000_000.0
CHAMPIONS = {"support": Champion("p-1", "d" * 64, "head")}
# The documentation's example, filled in as Alertmanager 0.25 does.
ALERT: dict[str, Any] = {
    "status": "firing",
    "labels": {"alertname": "SlowAnswers", "severity": "page", "pairing": "support"},
    "annotations": {"summary": "answers take twice as long as last week"},
    "startsAt": "2026-11-30T12:00:00.123456789Z",
    "endsAt": "0001-01-01T00:00:00Z",
    "generatorURL": "http://prometheus:9090/graph?g0.expr=x",
    "fingerprint": "c3a1f0e5b6d7a8f9",
}


def body(*alerts: Any, **more: Any) -> bytes:
    payload = {
        "version": "4",
        "groupKey": '{}:{alertname="SlowAnswers"}',
        "truncatedAlerts": 0,
        "status": "firing",
        "receiver": "paceline",
        "groupLabels": {"alertname": "SlowAnswers"},
        "commonLabels": {},
        "commonAnnotations": {},
        "externalURL": "http://alertmanager:9093",
        "alerts": list(alerts),
    }
    return json.dumps(payload | more).encode()


def taken(*alerts: Any, **more: Any) -> Taken:
    return read(body(*alerts, **more), champions=CHAMPIONS, at=AT)


def labelled(**labels: str) -> dict[str, Any]:
    return ALERT | {"labels": ALERT["labels"] | labels}


def test_an_alert_of_somebody_else_s_is_an_alarm_of_what_is_served() -> None:
    (notice,) = taken(ALERT).notices
    alarm = notice.alarm
    assert (notice.phase, notice.id) == (Phase.RAISED, alarm.id)
    assert (alarm.pair, alarm.release, alarm.drafter) == ("p-1", "d" * 64, "head")
    assert (alarm.cause, alarm.action) == ("external", "retrain")
    assert alarm.since == pytest.approx(1796040000.123456)
    assert "SlowAnswers: answers take twice as long as last week" in alarm.statement


def test_alertmanager_repeats_and_we_do_not() -> None:
    ids = {taken(ALERT).notices[0].id for _ in range(2)}
    ids |= {taken(ALERT | {"annotations": {}}).notices[0].id}
    assert len(ids) == 1
    later = ALERT | {"startsAt": "2026-11-30T13:00:00Z"}
    assert taken(later).notices[0].id not in ids


def test_a_resolved_alert_ends_its_alarm() -> None:
    over = ALERT | {"status": "resolved", "endsAt": "2026-11-30T14:00:00Z"}
    (notice,) = taken(over).notices
    assert notice.phase is Phase.RESOLVED
    assert notice.alarm.id == taken(ALERT).notices[0].id
    assert notice.id == notice.alarm.id + ".resolved"


@pytest.mark.parametrize(
    ("labels", "cause"),
    [({}, "external"), ({"paceline_cause": "drift"}, "drift"), ({"pair": "p-1"}, "external")],
)
def test_labels_say_whom_and_what_it_is_of(labels: dict[str, str], cause: str) -> None:
    assert taken(labelled(**labels)).notices[0].alarm.cause == cause


def test_without_labels_it_is_of_what_is_served_where_that_is_one() -> None:
    bare = ALERT | {"labels": {"alertname": "x"}}
    assert taken(bare).notices[0].alarm.pair == "p-1"
    two = {**CHAMPIONS, "docs": Champion("p-9", "e" * 64)}
    assert read(body(bare), champions=two, at=AT).notices == ()


@pytest.mark.parametrize(
    ("alert", "why"),
    [
        (labelled(pairing="docs"), "not served here"),
        (labelled(pair="p-2"), "not served here"),
        (labelled(paceline="monitor"), "Paceline's own"),
        (labelled(paceline_cause="release_mismatch"), "wanted one of"),
        (labelled(paceline_cause="\ud800"), "wanted one of"),
        (ALERT | {"startsAt": "yesterday"}, "RFC 3339"),
        (ALERT | {"startsAt": "2026-13-30T12:00:00Z"}, "RFC 3339"),
        (ALERT | {"startsAt": "0001-01-01T00:00:00Z"}, "RFC 3339"),
        (ALERT | {"status": "pending"}, "firing or resolved"),
        ({}, "RFC 3339"),
    ],
)
def test_what_cannot_be_acted_on_is_passed_over_with_the_reason(
    alert: dict[str, Any], why: str
) -> None:
    found = taken(alert, ALERT)
    assert len(found.notices) == 1
    assert found.passed_over[0].startswith("alert 1: ")
    assert why in found.passed_over[0]


def test_what_alertmanager_left_out_is_said() -> None:
    assert taken(ALERT, truncatedAlerts=7).passed_over == ("7 more were left out by Alertmanager",)


@pytest.mark.parametrize(
    "wrong",
    [
        *(b"", b"[]", b"{", b'{"version": "3", "alerts": []}', b"[" * 100_000, b"\xff"),
        *(b'{"version": "4"}', b'{"version": "4", "alerts": [1]}'),
        body(*[ALERT] * (MOST_ALERTS + 1)),
    ],
    ids=range(9),
)
def test_another_body_is_refused(wrong: bytes) -> None:
    with pytest.raises(PayloadError, match="wanted"):
        read(wrong, champions=CHAMPIONS, at=AT)


def test_a_statement_is_one_line_that_can_be_stored() -> None:
    odd = ALERT | {"annotations": {"summary": "a\nb\x00\x1b[31m\ud800" + "x" * 10_000}}
    statement = taken(odd).notices[0].alarm.statement
    assert len(statement) < 800
    assert statement.isprintable()
    statement.encode()


def test_a_time_of_the_future_is_now() -> None:
    ahead = ALERT | {"startsAt": "2126-11-30T12:00:00+02:00"}
    assert taken(ahead).notices[0].alarm.since == AT


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.floats(), st.text(max_size=9)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS = st.sampled_from([*ALERT, "other"])


@settings(max_examples=50, deadline=None)
@given(alert=st.dictionaries(KEYS, JSON))
def test_no_alert_is_too_odd(alert: dict[str, Any]) -> None:
    found = taken(ALERT | alert)
    assert len(found.notices) + len(found.passed_over) == 1


def test_only_causes_that_others_can_know_may_come_from_outside() -> None:
    outside = {name for name, row in CAUSES.items() if row.outside}
    assert outside == {"dead_draft", "drift", "no_gain", "external"}
