"""Counters become increases: resets, missed looks, retired pairs, and pages that are none."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest

from monitoring.scrape import Increase, Increases, Scrape, ScrapeError, parse
from speculation.records import Counts


class Page:
    """A server's metrics, made by the library that real servers use."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("pair", "drafter")
        self.totals = {
            name: Counter(f"paceline_{name}", name, labels, registry=self.registry)
            for name in ("rounds", "plain_forwards", "drafted_tokens", "emitted_tokens")
        }
        self.positions = {
            name: Counter(
                f"paceline_{name}_tokens", name, (*labels, "position"), registry=self.registry
            )
            for name in ("judged", "accepted")
        }
        self.requests = Counter(
            "paceline_requests", "r", (*labels, "outcome"), registry=self.registry
        )

    def serve(self, counts: Counts, *, pair: str = "p-1", first_position: int = 1) -> None:
        for name, value in (
            ("rounds", counts.rounds),
            ("plain_forwards", counts.plain_forwards),
            ("drafted_tokens", counts.drafted),
            ("emitted_tokens", counts.emitted),
        ):
            self.totals[name].labels(pair, "head").inc(value)
        for name, per_position in (
            ("judged", counts.judged_per_position),
            ("accepted", counts.accepted_per_position),
        ):
            for position, value in enumerate(per_position, first_position):
                self.positions[name].labels(pair, "head", str(position)).inc(value)
        self.requests.labels(pair, "head", "stop").inc()

    def look(self, at: float) -> Scrape:
        return parse(generate_latest(self.registry).decode(), at=at)


ONE = Counts(10, 1, 40, 28, (10, 7, 5, 4), (7, 5, 4, 1))
KEY = ("p-1", "head")


@pytest.mark.parametrize("first_position", [0, 1])
def test_what_happened_between_two_looks_is_their_difference(first_position: int) -> None:
    page, increases = Page(), Increases()
    page.serve(ONE, first_position=first_position)
    assert increases.update(page.look(1.0)) == {}
    page.serve(ONE, first_position=first_position)
    assert increases.update(page.look(2.0)) == {KEY: Increase(ONE, {"stop": 1})}
    assert increases.update(page.look(3.0)) == {}


def test_a_missed_look_loses_nothing() -> None:
    page, increases = Page(), Increases()
    increases.update(page.look(1.0))
    page.serve(ONE)
    page.serve(ONE)  # a look between the two failed
    assert increases.update(page.look(3.0))[KEY].counts == ONE + ONE


def test_a_restarted_server_counts_from_nothing() -> None:
    before, increases = Page(), Increases()
    for _ in range(5):
        before.serve(ONE)
    increases.update(before.look(1.0))
    after = Page()
    after.serve(ONE)
    assert increases.update(after.look(2.0)) == {KEY: Increase(ONE, {"stop": 1})}
    after.serve(ONE)
    assert increases.update(after.look(3.0))[KEY].counts == ONE


def test_one_counter_that_fell_resets_all_counters_of_the_pair() -> None:
    """A rare outcome may be higher after the restart than all before it: no difference is right."""
    before, after, increases = Page(), Page(), Increases()
    for _ in range(5):
        before.serve(ONE)
    after.serve(ONE)
    before.requests.labels("p-1", "head", "error").inc(1)
    after.requests.labels("p-1", "head", "error").inc(2)
    increases.update(before.look(1.0))
    assert increases.update(after.look(2.0))[KEY].requests == {"stop": 1, "error": 2}


def test_a_restarted_server_that_served_nothing_yet_did_nothing() -> None:
    before, increases = Page(), Increases()
    before.serve(ONE)
    increases.update(before.look(1.0))
    after = Page()
    assert increases.update(after.look(2.0)) == {}
    after.serve(ONE)
    assert increases.update(after.look(3.0))[KEY].counts == ONE


def test_a_pair_the_server_retired_is_neither_a_reset_nor_new_activity() -> None:
    page, increases = Page(), Increases()
    page.serve(ONE, pair="old")
    page.serve(ONE)
    increases.update(page.look(1.0))
    retiring = Page()
    retiring.serve(ONE, pair="retired")
    retiring.serve(ONE)
    retiring.serve(ONE)
    assert increases.update(retiring.look(2.0)) == {KEY: Increase(ONE, {"stop": 1})}


def test_two_pairs_during_a_swap_are_told_apart() -> None:
    page, increases = Page(), Increases()
    page.serve(ONE)
    increases.update(page.look(1.0))
    page.serve(ONE)
    page.serve(ONE, pair="p-2")
    assert set(increases.update(page.look(2.0))) == {KEY, ("p-2", "head")}


def test_adapters_of_one_pair_are_one_drafters_traffic_and_no_pair_is_none() -> None:
    def page(first: int, second: int) -> Scrape:
        lines = []
        for adapter, count in (("", first), ("tenor", second)):
            labels = f'pair="p-1",drafter="head",adapter="{adapter}"'
            lines.append(f"paceline_rounds_total{{{labels}}} {count}")
            lines.append(f'paceline_accepted_tokens_total{{{labels},position="0"}} {count}')
            lines.append(f'paceline_judged_tokens_total{{{labels},position="0"}} {count}')
            lines.append(f'paceline_requests_total{{{labels},outcome="stop"}} {count}')
        unready = 'pair="",drafter="",adapter="",outcome="unavailable"'
        lines.append(f"paceline_requests_total{{{unready}}} {first}")
        return parse("\n".join(lines) + "\n", at=1.0)

    increases = Increases()
    increases.update(page(1, 1))
    moved = increases.update(page(4, 6))
    assert moved == {KEY: Increase(Counts(8, 0, 0, 0, (8,), (8,)), {"stop": 8})}


def test_a_server_without_traffic_is_an_empty_page() -> None:
    assert parse("", at=1.0).counters == {}


@pytest.mark.parametrize(
    "text",
    [
        "<!DOCTYPE html><html><body>502 Bad Gateway</body></html>",
        '{"error": "not found"}',
        'paceline_rounds_total{pair="p" 3\n',
        'paceline_rounds_total{pair="p"} NaN\n',
        'paceline_rounds_total{pair="p"} -1\n',
        'paceline_rounds_total{pair="p"} +Inf\n',
        "x" * 9_000_000,
    ],
    ids=["html", "json", "broken", "nan", "negative", "infinite", "huge"],
)
def test_a_page_that_cannot_be_believed_is_named(text: str) -> None:
    with pytest.raises(ScrapeError, match="wanted"):
        parse(text, at=1.0)


@pytest.mark.parametrize("position", ["first", "", "-1", "1000", "1" * 5000])
def test_a_position_that_is_no_position_is_named(position: str) -> None:
    text = f'paceline_judged_tokens_total{{pair="p",drafter="d",position="{position}"}} 1\n'
    with pytest.raises(ScrapeError, match="wanted a draft position"):
        parse(text, at=1.0)
