"""One pair over its life: learning, falling, dying, coming back, being stored."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from monitoring.baselines import LEARN_AT, Baseline
from monitoring.diagnosis import diagnose
from monitoring.facts import Finding
from monitoring.watched import KEPT, WINDOW, Expected, Watched
from speculation.records import Counts, Exchange, Interval
from tests.monitoring.streams import HEALTHY, stream

FIRST_REQUESTS = LEARN_AT[0]
OLD, NEW = "a" * 64, "b" * 64
DEAD = -HEALTHY[0]
REPORTED = Baseline(Interval(0.69, 0.67, 0.71, 300))


def exchange(number: int, counts: Counts, *, release: str = OLD) -> Exchange:
    return Exchange(
        f"r{number}",
        "p-1",
        release,
        "head",
        4,
        float(number),
        20,
        0,
        counts,
        0.0,
        0.1,
        0.4,
        "stop",
        prompt_ids=(1, 2, 3),
        completion_ids=(4, 5),
    )


def feed(watched: Watched, requests: list[Counts], *, start: int = 0) -> list[Finding]:
    """Each matter once while it lasts, as it was when it was found."""
    found, open_now = list[Finding](), set[str]()
    for number, counts in enumerate(requests, start):
        alarming = watched.update(exchange(number, counts))
        now = diagnose(watched.facts(float(number))) if alarming else []
        found += [one for one in now if one.key not in open_now]
        open_now = {one.key for one in now}
    return found


def test_without_a_report_the_first_healthy_requests_are_the_baseline() -> None:
    watched = Watched("p-1", "head")
    first = stream(FIRST_REQUESTS, seed=1)
    feed(watched, first[:-1])
    assert watched.baseline is None
    feed(watched, first[-1:])
    assert watched.baseline is not None
    assert watched.baseline.acceptance.n == FIRST_REQUESTS


def test_a_reported_baseline_judges_from_the_first_request() -> None:
    watched = Watched("p-1", "head")
    watched.expect(Expected(OLD, REPORTED))
    (alarm,) = feed(watched, stream(150, seed=1, shift=-0.2))
    assert alarm.cause == "drift"
    assert alarm.evidence["baseline"] == 0.69


def test_a_reported_baseline_replaces_a_learnt_one_once_and_is_then_kept() -> None:
    watched = Watched("p-1", "head")
    feed(watched, stream(FIRST_REQUESTS, seed=1))
    watched.expect(Expected(OLD, REPORTED))
    assert watched.baseline == REPORTED
    feed(watched, stream(20, seed=2, shift=-0.2))
    level = watched.judges.cusum.level
    assert level > 0
    watched.expect(Expected(OLD, REPORTED))
    assert watched.judges.cusum.level == level  # asked at every poll: it must not start over


def test_a_baseline_of_the_pairs_draft_does_not_judge_the_drafter_it_fell_back_to() -> None:
    fallen_back = Watched("p-1", "ngram")
    fallen_back.expect(Expected(OLD, REPORTED, drafter="head"))
    assert fallen_back.baseline is None
    assert fallen_back.expected_release == OLD


def test_a_wide_baseline_widens_the_allowance() -> None:
    watched = Watched("p-1", "head")
    watched.expect(Expected(OLD, Baseline(Interval(0.69, 0.62, 0.76, 40))))
    assert watched.judges.cusum.allowance == pytest.approx(0.05 + 0.07 - 0.01)


def test_a_dead_draft_is_one_alarm_of_its_own_cause_and_no_drift() -> None:
    watched = Watched("p-1", "head")
    requests = stream(FIRST_REQUESTS, seed=1) + stream(400, seed=2, shift=DEAD)
    (alarm,) = feed(watched, requests)
    assert alarm.cause == "dead_draft"
    assert alarm.since == FIRST_REQUESTS + 0.5  # when the first dead request ended
    assert alarm.requests <= 20
    assert alarm.evidence["acceptance_high"] < 0.6


def test_a_draft_dead_from_the_start_is_seen_and_never_becomes_the_baseline() -> None:
    watched = Watched("p-1", "head")
    alarms = feed(watched, stream(FIRST_REQUESTS + 50, seed=1, shift=DEAD))
    assert [alarm.cause for alarm in alarms] == ["dead_draft"]
    assert watched.baseline is None
    assert watched.learning.first == []


def test_ngram_that_accepts_little_from_the_start_is_not_dead() -> None:
    watched = Watched("p-1", "ngram")
    assert feed(watched, stream(1000, seed=1, hazards=(0.03,) * 4)) == []


def test_a_draft_that_comes_back_ends_its_alarm_and_may_die_anew() -> None:
    watched = Watched("p-1", "head")
    healthy, dead = stream(FIRST_REQUESTS, seed=1), stream(50, seed=2, shift=DEAD)
    alarms = feed(watched, healthy + dead)
    assert watched.facts(0.0).dead is not None
    assert feed(watched, stream(300, seed=3), start=250)[1:] == []  # the one that is still on
    assert watched.facts(0.0).dead is None
    alarms += feed(watched, dead, start=550)
    assert [one.cause for one in alarms if one.cause != "slow_service"] == ["dead_draft"] * 2
    assert alarms[0].since != alarms[-1].since


def test_another_release_is_alarmed_once_while_it_lasts() -> None:
    watched = Watched("p-1", "head")
    watched.expect(Expected(OLD))
    counts = stream(30, seed=1)
    assert feed(watched, counts[:10]) == []
    assert watched.update(exchange(10, counts[10], release=NEW))
    (found,) = diagnose(watched.facts(11.0))
    assert (found.cause, found.since) == ("release_mismatch", 10.5)
    assert not watched.update(exchange(11, counts[11]))


def test_another_release_is_seen_without_any_traffic() -> None:
    watched = Watched("p-1", "head")
    watched.expect(Expected(OLD))
    assert not watched.serving(OLD, at=1.0)
    assert watched.serving(NEW, at=2.0)
    (found,) = diagnose(watched.facts(3.0))
    assert (found.cause, found.since) == ("release_mismatch", 2.0)


def test_stored_and_gone_on_from_it_gives_the_same_alarms() -> None:
    requests = stream(FIRST_REQUESTS, seed=1) + stream(300, seed=2, shift=-0.15)
    through, stored = Watched("p-1", "head"), Watched("p-1", "head")
    expected = feed(through, requests)
    for number, counts in enumerate(requests):
        if number % 17 == 0:
            stored = Watched.from_json(json.loads(json.dumps(stored.to_json())))
        stored.update(exchange(number, counts))
    assert [one.cause for one in expected] == ["drift"]
    assert diagnose(stored.facts(500.0)) == diagnose(through.facts(500.0))
    assert stored.to_json() == through.to_json()


def test_captured_tokens_are_not_kept() -> None:
    watched = Watched("p-1", "head")
    feed(watched, stream(3, seed=1))
    assert "ids" not in json.dumps(watched.to_json())


def test_what_is_kept_is_bounded() -> None:
    watched = Watched("p-1", "head")
    feed(watched, stream(3 * KEPT, seed=1))
    assert len(watched.kept) == KEPT
    assert watched.point().requests == WINDOW


def test_a_point_says_what_the_window_says() -> None:
    watched = Watched("p-1", "head")
    feed(watched, stream(WINDOW, seed=1))
    point = watched.point()
    assert (point.pair, point.drafter, point.release, point.draft_len) == ("p-1", "head", OLD, 4)
    assert point.acceptance is not None
    assert point.acceptance.low < 0.7 < point.acceptance.high
    assert point.standardised is None  # nothing to weight it by yet
    assert point.tokens_per_second == pytest.approx(48 / 0.5)


def test_a_cancelled_request_may_be_the_only_one() -> None:
    watched = Watched("p-1", "head")
    watched.update(replace(exchange(0, Counts(plain_forwards=1)), outcome="cancelled"))
    assert watched.point().forwards_per_request is None


def test_a_release_that_differs_in_its_chat_template_alone_is_known_as_such() -> None:
    watched = Watched("p-1", "head")
    parts = {"weights": "w", "tokenizer": "t", "chat_template": "c"}
    watched.expect(Expected(OLD, parts=parts))
    watched.looked(running=0, slots=4, parts={**parts, "chat_template": "other"})
    assert watched.serving(NEW, at=5.0)
    assert [one.cause for one in diagnose(watched.facts(5.0))] == ["template_change"]
    watched.looked(running=0, slots=4, parts={**parts, "weights": "other"})
    assert [one.cause for one in diagnose(watched.facts(5.0))] == ["release_mismatch"]
