"""A round's seconds reach the pace of the drafter that took them, found or looked for in vain."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from speculation.drafters import Ask, NoDrafter, Proposal
from speculation.engine import Engine
from speculation.seats import Outcome, Timing
from speculation.sequence import Request
from tests.speculation.exact import TableTarget


class Clock:
    """Stands still but for what is spent."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Taking(NoDrafter):
    """Takes its time; drafts the token 1 for each row, or nothing."""

    kind = "taking"

    def __init__(self, clock: Clock, seconds: float, *, drafts: bool, fails: bool = False) -> None:
        self.clock, self.seconds, self.drafts, self.fails = clock, seconds, drafts, fails

    def propose(self, asks: Sequence[Ask]) -> Proposal:
        self.clock.now += self.seconds
        if self.fails:
            raise RuntimeError
        return Proposal([[1] * ask.length * self.drafts for ask in asks], None)


def timings(
    drafters: dict[str, Taking], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> dict[str, list[tuple[Timing, int]]]:
    """What each drafter's pace is told, and with how many outcomes, of the rounds of two requests
    each."""
    target = TableTarget()
    right = target.forward

    def slow(*args: object) -> object:
        clock.now += 1.0
        return right(*args)  # type: ignore[arg-type]  # handed on

    monkeypatch.setattr(target, "forward", slow)
    engine = Engine(
        target,  # type: ignore[arg-type]  # the table stands where a target does
        drafters,
        default=next(iter(drafters)),
        adaptive=True,
        slots=4,
        max_len=64,
        clock=clock,
        entropy=lambda: 7,
    )
    told: dict[str, list[tuple[Timing, int]]] = {name: [] for name in drafters}
    for name, pace in engine.paces.items():

        def observe(timing: Timing, outcomes: Sequence[Outcome] = (), name: str = name) -> None:
            told[name].append((timing, len(outcomes)))

        monkeypatch.setattr(pace, "observe", observe)
    for number in range(2):
        for name in drafters:
            engine.submit(Request(f"{name}{number}", (1, 3, 1), 40, drafter=name))
    while not engine.idle:
        engine.step()
    return told


def test_looking_in_vain_is_told_with_the_seconds_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    found = timings({"x": Taking(clock, 0.25, drafts=False)}, clock, monkeypatch)["x"]
    asked = [timing for timing, _ in found if timing.in_vain]
    assert len(asked) > 10
    for timing, outcomes in found:
        assert (timing.drafted, timing.drafting, timing.width, outcomes) == (0, 0, 1, 0)
        assert timing.draft_seconds == (0.25 if timing.in_vain else 0.0)
        assert timing.target_seconds == 1.0
        assert timing.overhead_seconds == pytest.approx(0.0)


def test_two_drafters_of_one_round_are_each_told_their_own_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    drafters = {
        "quick": Taking(clock, 0.125, drafts=True),
        "slow": Taking(clock, 0.5, drafts=True),
    }
    found = timings(drafters, clock, monkeypatch)
    shared = [
        (quick, slow)
        for quick, slow in zip(found["quick"], found["slow"], strict=True)
        if quick[0].drafting and slow[0].drafting
    ]
    assert len(shared) > 5
    for (quick, judged), (slow, _) in shared:
        assert (quick.draft_seconds, slow.draft_seconds) == (0.125, 0.5)
        assert quick.drafting == judged <= 2
        assert quick.width == slow.width == 1 + max(quick.drafted, slow.drafted)
        assert quick.overhead_seconds == pytest.approx(0.0)


def test_a_drafter_that_was_not_asked_or_failed_is_not_told_to_have_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    drafters = {"x": Taking(clock, 0.25, drafts=True, fails=True)}
    found = timings(drafters, clock, monkeypatch)["x"]
    assert found
    assert all(timing.in_vain == timing.drafting == 0 for timing, _ in found)
    assert all(timing.draft_seconds == 0.0 for timing, _ in found)
