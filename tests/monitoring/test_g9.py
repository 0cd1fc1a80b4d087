"""G9 by simulation: what is seen after how many requests, and how often by mistake.

Streams of beta-binomial requests with intra-request correlation 0.10, through `Watched` as the
monitor runs it, which learns its baseline from the first 200 requests and better from 1,000. The
fast tests run a few streams, the slow ones all forty.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median

import numpy as np
import pytest

from monitoring.baselines import LEARN_AT
from monitoring.diagnosis import diagnose
from monitoring.facts import Finding
from monitoring.watched import Watched
from speculation.records import Counts, Exchange
from tests.monitoring.streams import HEAD, HEALTHY, Shift, stream

LEARNT = LEARN_AT[0]
DEAD = -HEALTHY[0]


def exchange(number: int, counts: Counts, draft_len: int = 4) -> Exchange:
    at = float(number)
    return Exchange(
        f"r{number}", "p-1", "d" * 64, "head", draft_len, at, 20, 0, counts, 0.0, 0.01, 0.5, "stop"
    )


def first_alarm(
    requests: Iterable[Counts | Exchange], *, after: int = 0
) -> tuple[int, Finding] | None:
    """How many requests after the first `after`, and the finding."""
    watched = Watched("p-1", "head")
    for number, one in enumerate(requests, start=1):
        served = one if isinstance(one, Exchange) else exchange(number, one)
        if watched.update(served) and (found := diagnose(watched.facts(float(number)))):
            return number - after, found[0]
    return None


def delays(shift: float, *, streams: int, cause: str, healthy: int = LEARNT) -> list[float]:
    """Requests from the fall to the alarm; infinite where none came within 3,000."""
    found = []
    for seed in range(streams):
        requests = stream(healthy, seed=1000 + seed) + stream(3000, seed=seed, shift=shift)
        alarmed = first_alarm(requests, after=healthy)
        if alarmed is None:
            found.append(math.inf)
        else:
            delay, alarm = alarmed
            assert alarm.cause == cause
            found.append(delay)
    return found


def false_alarms(*, streams: int, requests: int, **how: object) -> int:
    return sum(
        first_alarm(stream(LEARNT + requests, seed=2000 + seed, **how)) is not None  # type: ignore[arg-type]  # passed on as given
        for seed in range(streams)
    )


def daily_wave(requests: int, phase: float = 0.0) -> Shift:
    return 0.02 * np.sin(np.arange(requests) * 2 * np.pi / 5000 + phase)


def test_falls_are_seen_in_time() -> None:
    assert median(delays(-0.10, streams=11, cause="drift")) <= 200
    assert median(delays(-0.20, streams=11, cause="drift")) <= 100
    assert max(delays(DEAD, streams=11, cause="dead_draft")) <= 20


def test_healthy_requests_do_not_alarm() -> None:
    assert false_alarms(streams=1, requests=6000) == 0


def test_a_slow_daily_wave_does_not_alarm() -> None:
    assert false_alarms(streams=1, requests=6000, shift=daily_wave(LEARNT + 6000)) == 0


@pytest.mark.parametrize("after", [1, 2, 8])
def test_a_change_of_draft_len_alone_does_not_alarm(after: int) -> None:
    before = stream(LEARNT, seed=1, hazards=HEAD, draft_len=4)
    changed = stream(3000, seed=2, hazards=HEAD, draft_len=after)
    assert first_alarm(before + changed) is None


def test_turning_speculation_off_does_not_alarm() -> None:
    off = [Counts(rounds=0, plain_forwards=48, emitted=48)] * 2000
    assert first_alarm(stream(LEARNT, seed=1) + off) is None


def test_very_short_requests_do_not_alarm_by_chance() -> None:
    assert false_alarms(streams=1, requests=6000, tokens=6) == 0


def test_requests_whose_length_follows_their_acceptance_do_not_alarm() -> None:
    assert false_alarms(streams=1, requests=6000, length_follows_acceptance=True) == 0


@pytest.mark.slow
def test_forty_streams_of_twenty_thousand_healthy_requests_alarm_at_most_once() -> None:
    assert false_alarms(streams=40, requests=20_000) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("how", [{"tokens": 6}, {"length_follows_acceptance": True}], ids=str)
def test_neither_short_requests_nor_lengths_alarm_in_ten_streams(how: dict[str, int]) -> None:
    assert false_alarms(streams=10, requests=20_000, **how) == 0


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.05, 0.20])
def test_other_correlations_do_not_alarm_more(correlation: float) -> None:
    assert false_alarms(streams=20, requests=20_000, correlation=correlation) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("phase", [0.0, math.pi / 2])
def test_forty_streams_under_a_daily_wave_alarm_at_most_once(phase: float) -> None:
    """At phase pi/2 the baseline is learnt at the crest, which is the worst moment for it."""
    wave = daily_wave(LEARNT + 20_000, phase)
    assert false_alarms(streams=40, requests=20_000, shift=wave) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("healthy", [LEARNT, LEARN_AT[-1] + 500])
def test_falls_are_seen_in_time_over_a_hundred_streams(healthy: int) -> None:
    for shift, cause, most in (
        (-0.05, "drift", math.inf),
        (-0.10, "drift", 200),
        (-0.20, "drift", 100),
        (DEAD, "dead_draft", 20),
    ):
        found = sorted(delays(shift, streams=100, cause=cause, healthy=healthy))
        print(f"{healthy} healthy, fall {-shift:.2f}: median {median(found)}, p90 {found[90]}")
        assert median(found) <= most
