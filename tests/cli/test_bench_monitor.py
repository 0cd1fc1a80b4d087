"""`paceline bench monitor`: its tables, and when it says no."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import app
from monitoring import proof, scraping_cost
from monitoring.naive import NAMES
from monitoring.proof import OURS, Proof, Tally
from monitoring.scraping_cost import Cost
from monitoring.simulation import Scenario, scenarios

runner = CliRunner()


def proven(*, seen: float, cases: list[Scenario]) -> Proof:
    """Every fall is seen after so many requests, and nothing else is."""
    tallies = []
    for scenario in cases:
        first = seen if scenario.fall else math.inf
        by = dict.fromkeys(OURS, (first, first)) | dict.fromkeys(NAMES, (1.0, 1.0))
        tallies.append(Tally(scenario, by))
    return Proof(tuple(tallies), NAMES)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run it with made-up figures."""

    def run(*asked: str, seen: float = 5.0, cpu_seconds: float = 1.8) -> Any:
        def prove(*, cases: Any, **how: Any) -> Proof:
            return proven(seen=seen, cases=list(cases))

        def measure(home: Any, *, replicas: int) -> Cost:
            return Cost(replicas, 2 * cpu_seconds, cpu_seconds, 44_000, 3)

        monkeypatch.setattr(proof, "prove", prove)
        monkeypatch.setattr(scraping_cost, "measure", measure)
        return runner.invoke(app, ["bench", "monitor", *asked])

    return run


def test_what_keeps_every_bound_is_a_yes_with_its_tables(bench: Any) -> None:
    done = bench()
    assert done.exit_code == 0, done.output
    for line in ("Correlation 0.20 within a request", "1,000 replicas", "Every bound is kept."):
        assert line in done.output
    assert max(map(len, done.stdout.splitlines())) <= 100
    for name in (*OURS, *NAMES):
        assert name in done.output
    for scenario in scenarios((0.10,)):
        assert scenario.name in done.output


def test_a_fall_that_is_seen_late_is_a_no_that_says_so(bench: Any) -> None:
    done = bench("--only", "detectors", seen=150.0)
    assert done.exit_code == 1
    assert "fall 0.20: seen after 150 requests (median), wanted 100" in done.output
    assert "replicas" not in done.output


def test_a_look_that_takes_too_long_is_a_no(bench: Any) -> None:
    done = bench("--only", "cost", cpu_seconds=6.0)
    assert done.exit_code == 1
    assert "a look takes 6.0 s of a core, wanted 5" in done.output
    assert "Correlation" not in done.output
    assert bench("--only", "cost", "--replicas", "2000", cpu_seconds=6.0).exit_code == 0


def test_programs_get_every_first_alarm(bench: Any) -> None:
    done = bench("--json")
    told = json.loads(done.stdout)
    assert told["holds"] is True
    assert told["cost"]["replicas"] == 1000
    first = told["cases"][0]["first_alarm"]
    assert first["shipped combination"] == [None, None]
    assert first["KSWIN"] == [1.0, 1.0]
