"""Requests of several kinds through `Watched`: what moved, of which of them, and why."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from monitoring.baselines import LEARN_AT, Baseline
from monitoring.diagnosis import diagnose
from monitoring.facts import Finding
from monitoring.watched import NEW_CELL, Expected, Watched
from speculation.records import Counts, Exchange
from tests.monitoring.streams import HEALTHY, stream

LEARNT = LEARN_AT[0]
DEAD = -HEALTHY[0]
HARD = (0.50,) * 8


def exchange(counts: Counts, adapter: str | None = None, **facts: object) -> Exchange:
    plain = Exchange(
        "r", "p-1", "d" * 64, "head", 4, 0.0, 20, 0, counts, 0.0, 0.01, 0.5, "stop", adapter
    )
    return replace(plain, **facts)  # type: ignore[arg-type]  # its own fields


def mixed(
    share: float, requests: int, *, seed: int, hard: Sequence[float] = HARD, shift: float = 0.0
) -> Iterator[Exchange]:
    """That share of them is of the adapter `hard`, with other hazards, shifted by so much."""
    chosen = np.random.default_rng(seed).random(requests) < share
    easy = iter(stream(requests, seed=seed + 1))
    others = iter(stream(requests, seed=seed + 2, hazards=hard, shift=shift))
    for one in chosen:
        yield exchange(next(others if one else easy), "hard" if one else None)


class Life:
    """A pair's requests, one a second; what was found at each."""

    def __init__(self, watched: Watched | None = None) -> None:
        self.watched, self.at = watched or Watched("p-1", "head"), 0.0

    def feed(self, requests: Iterable[Exchange]) -> list[tuple[int, Finding]]:
        """Each matter once, with the number of the request at which it was found."""
        found: dict[str, tuple[int, Finding]] = {}
        for number, one in enumerate(requests, start=1):
            self.at += 1.0
            if self.watched.update(replace(one, started=self.at)):
                for finding in diagnose(self.watched.facts(self.at)):
                    found.setdefault(finding.key, (number, finding))
        return list(found.values())

    @property
    def now(self) -> list[str]:
        return [one.cause for one in diagnose(self.watched.facts(self.at))]


def causes(found: list[tuple[int, Finding]]) -> list[str]:
    return [finding.cause for _, finding in found]


def test_a_change_of_the_mix_alone_is_said_to_be_one_and_is_no_drift() -> None:
    life = Life()
    assert life.feed(mixed(0.2, LEARN_AT[1], seed=1)) == []
    ((_, found),) = life.feed(mixed(0.8, 400, seed=5))
    assert found.cause == "mix_shift"
    assert found.evidence["by_mix"] < -0.02
    mix = life.watched.facts(life.at).mix
    assert mix is not None
    assert mix.by_mix == pytest.approx(0.6 * (0.50 - 0.70), abs=0.04)
    assert mix.within is not None
    assert mix.within.low < 0.0 < mix.within.high


def test_one_adapter_of_ten_that_falls_is_named_after_few_of_its_requests() -> None:
    life = Life()
    assert life.feed(mixed(0.1, LEARN_AT[-1], seed=1, hard=HEALTHY)) == []
    found = life.feed(mixed(0.1, 400, seed=5, hard=HEALTHY, shift=-0.3))
    number, first = found[0]
    assert (first.cause, first.slice) == ("drift", "adapter=hard")
    assert number <= 400  # of which a tenth are its own
    assert {finding.slice for _, finding in found} == {"adapter=hard"}
    assert first.estimate is not None
    assert first.expected is not None
    assert first.estimate.high < first.expected.low


def test_an_adapter_that_the_draft_never_suited_is_named_by_a_reports_baseline() -> None:
    requests = stream(500, seed=3)
    reported = Baseline.of(requests, ["adapter=none|context up to 256"] * 500)
    life = Life()
    life.watched.expect(Expected(baseline=reported))
    found = life.feed(mixed(0.3, 600, seed=7))
    assert found[0][1].slice == "adapter=hard"
    assert set(causes(found)) == {"drift"}


def test_a_draft_that_is_dead_for_one_adapter_alone_is_named() -> None:
    life = Life()
    life.feed(mixed(0.2, LEARN_AT[-1], seed=1, hard=HEALTHY))
    found = life.feed(mixed(0.2, 100, seed=5, hard=HEALTHY, shift=DEAD))
    assert ("dead_draft", "adapter=hard") in [(one.cause, one.slice) for _, one in found]


def test_a_kind_of_request_that_is_new_is_learnt_before_it_is_compared() -> None:
    life = Life()
    life.feed(exchange(counts) for counts in stream(LEARN_AT[-1], seed=1))
    longer = [exchange(counts, prompt_tokens=900) for counts in stream(400, seed=2, hazards=HARD)]
    assert "drift" not in causes(life.feed(longer))
    assert life.watched.baseline is not None
    known = life.watched.baseline.cells["adapter=none|context up to 1024"]
    assert known.requests == NEW_CELL
    worse = stream(400, seed=3, hazards=HARD, shift=-0.2)
    found = life.feed(exchange(counts, prompt_tokens=900) for counts in worse)
    assert "drift" in causes(found)


@pytest.mark.parametrize("judged", [3, 12])
def test_a_dead_draft_that_its_pace_turned_off_is_seen_within_twenty_requests(judged: int) -> None:
    """K adapts: a dozen requests judge a token a round for a few rounds, then nothing is judged."""
    life = Life()
    life.feed(exchange(counts) for counts in stream(LEARNT, seed=1))
    few = Counts(judged, 40, 4 * judged, 48, (judged,), (0,))
    plain = Counts(0, 49, 0, 48)
    ended = [exchange(few, pace="drafting", adaptive=True)] * (12 if judged == 3 else 3)
    off = [exchange(plain, pace="off_by_rejection", adaptive=True)] * 20
    found = life.feed([*ended, *off])
    assert causes(found)[0] == "dead_draft"
    assert found[0][0] <= 20


def test_a_draft_that_was_turned_off_for_its_price_is_no_fall() -> None:
    life = Life()
    life.feed(exchange(counts) for counts in stream(LEARNT, seed=1))
    plain = exchange(Counts(0, 49, 0, 48), pace="off_by_cost", adaptive=True)
    assert set(causes(life.feed([plain] * 300))) == {"no_gain"}
    loaded = replace(plain, running=8)
    life.feed([loaded] * 300)
    assert life.now == ["capacity"]


def test_another_engine_is_a_new_baseline_and_no_drift() -> None:
    life = Life()
    before = [exchange(counts, engine="builtin 1") for counts in stream(LEARN_AT[-1], seed=1)]
    assert life.feed(before) == []
    lower = stream(LEARNT + 300, seed=2, shift=-0.15)
    found = life.feed(exchange(counts, engine="builtin 2") for counts in lower)
    assert causes(found) == ["engine_change"]
    assert found[0][0] == 1
    assert life.now == []
    assert life.watched.baseline is not None
    assert life.watched.baseline.engine == "builtin 2"
    assert life.watched.baseline.acceptance.estimate == pytest.approx(0.55, abs=0.03)
    fallen = stream(400, seed=3, shift=-0.35)
    found = life.feed(exchange(counts, engine="builtin 2") for counts in fallen)
    assert "drift" in causes(found)


def test_a_dead_draft_on_another_engine_is_dead_all_the_same() -> None:
    life = Life()
    life.feed(exchange(counts, engine="builtin 1") for counts in stream(LEARNT, seed=1))
    dead = stream(30, seed=2, shift=DEAD)
    assert "dead_draft" in causes(life.feed(exchange(c, engine="builtin 2") for c in dead))


def test_the_queue_that_grew_with_all_slots_taken_is_capacity() -> None:
    life = Life()
    healthy = stream(LEARNT, seed=1)
    life.feed(exchange(counts) for counts in healthy)
    for _ in range(30):
        life.watched.looked(running=8, slots=8, parts={})
    found = life.feed(exchange(counts, queue_seconds=4.0) for counts in healthy)
    assert causes(found) == ["capacity"]


def test_kinds_are_bounded_whatever_is_asked() -> None:
    life = Life()
    counts = stream(3 * LEARNT, seed=1)
    life.feed(exchange(one, f"a{number}") for number, one in enumerate(counts))
    names = [name for name in life.watched.mixture.watches if name.startswith("adapter=")]
    assert len(names) <= 17
    assert "adapter=other" in names
    assert len(json.dumps(life.watched.to_json())) < 2**20


def test_everything_of_many_kinds_goes_on_where_it_was_stored() -> None:
    through, stored = Life(), Life()
    requests = [*mixed(0.3, LEARNT + 50, seed=1), *mixed(0.7, 200, seed=4, shift=-0.2)]
    for number, one in enumerate(requests):
        if number % 29 == 0:
            told = json.loads(json.dumps(stored.watched.to_json()))
            stored = Life(Watched.from_json(told))
            stored.at = through.at
        through.feed([one])
        stored.feed([one])
    assert stored.watched.to_json() == through.watched.to_json()
    assert diagnose(stored.watched.facts(1.0)) == diagnose(through.watched.facts(1.0))
