from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cli import expected
from cli.expected import AGAIN_SECONDS, Expectations
from evaluation.simulation import Arm, report
from registry.errors import StoreError
from registry.remote import RemotePair
from speculation.records import pool

PAIR = RemotePair(
    "http://registry", "docstrings", 3, "p-1", "release", "head", "PASS", "", "m-1", ""
)
REPORT = report({"candidate": Arm(0.6)}, seed=0, prompts=24)


class Registry:
    """What the registry answers, and how often it was asked."""

    def __init__(self, champion: RemotePair | Exception | None) -> None:
        self.answer, self.asked = champion, 0
        self.stored: dict[str, Any] = REPORT.as_json()

    def champion(self, url: str, pairing: str, *, token: str | None) -> RemotePair | None:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def manifest(self, pair: RemotePair, *, token: str | None) -> Any:
        release = SimpleNamespace(weights="w", chat_template="t", adapter=None)
        return SimpleNamespace(release=release, engine="builtin", engine_version="0.1.0")

    def report(self, pair: RemotePair, *, token: str | None) -> dict[str, Any]:
        return self.stored


def expectations(
    monkeypatch: pytest.MonkeyPatch, registry: Registry, now: list[float]
) -> Expectations:
    monkeypatch.setattr(expected, "remote", registry)
    return Expectations(lambda: "http://registry", "docstrings", clock=lambda: now[0])


def test_the_champion_is_expected_to_do_what_its_report_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry = Registry(PAIR)
    known = expectations(monkeypatch, registry, [0.0])
    found = known.of("p-1")
    assert found is not None
    assert found.baseline is not None
    counts = pool([request.counts for request in REPORT.of("candidate")])
    assert found.baseline.acceptance.estimate == pytest.approx(counts.acceptance)
    assert (found.release, found.drafter) == ("release", "head")
    assert found.parts == {"weights": "w", "chat_template": "t"}
    assert found.baseline.engine == "builtin 0.1.0"
    assert "temperature=0" in {name for name in found.baseline.slices()}
    assert known.of("p-1") is found
    assert registry.asked == 1


@pytest.mark.parametrize("answer", [None, StoreError("away")])
def test_a_registry_that_knows_nothing_is_asked_again_later(
    monkeypatch: pytest.MonkeyPatch, answer: Exception | None
) -> None:
    registry, now = Registry(answer), [0.0]
    known = expectations(monkeypatch, registry, now)
    assert known.of("p-1") is None
    assert known.of("p-1") is None
    assert registry.asked == 1
    registry.answer, now[0] = PAIR, AGAIN_SECONDS
    assert known.of("p-1") is not None


def test_another_pair_than_the_champion_is_not_judged_by_its_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert expectations(monkeypatch, Registry(PAIR), [0.0]).of("p-2") is None


def test_a_pair_without_a_report_still_has_its_release(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry(PAIR)
    registry.stored = {"rows": []}
    found = expectations(monkeypatch, registry, [0.0]).of("p-1")
    assert found is not None
    assert (found.release, found.baseline) == ("release", None)
