"""Whatever a drafter does, requests go on, its fault is known, and in the end it is left alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from speculation.breaker import Breaker, DrafterFault, State
from speculation.drafters import Ask, NoDrafter, Proposal
from speculation.engine import Engine
from speculation.guard import Guarded, checked
from speculation.sampling import Sampling
from speculation.sequence import Request
from speculation.target import load_target
from tests.toys import toy_target_folder

V = 8
EVEN = torch.full((2, V), 1 / V)
SECRET = "the prompt's own words"


def ask(row: int = 0, length: int = 2) -> Ask:
    return Ask(row, [1, 2, 3], length, Sampling(temperature=1.0), 0)


def law(*changes: tuple[int, int, float]) -> Tensor:
    changed = EVEN.clone()
    for row, token, value in changes:
        changed[row, token] = value
    return changed


@pytest.mark.parametrize(
    ("proposal", "kind"),
    [
        (Proposal([[1, 2]], [EVEN]), None),
        (Proposal([[1, 2]], None), None),
        (Proposal([[1, 2]], [None]), None),
        (Proposal([[]], None), None),
        (Proposal([[]], [EVEN[:0]]), None),
        (Proposal([], None), "width"),
        (Proposal([[1], [2]], None), "width"),
        (Proposal([[1, 2]], [EVEN, EVEN]), "width"),
        (Proposal([[1, 2, 3]], None), "width"),
        (Proposal([[1.0, 2.0]], None), "width"),  # type: ignore[list-item]  # what is wrong with it
        (Proposal([[]], [EVEN]), "width"),
        (Proposal([[1, 2]], None, broken=(1,)), "width"),
        (Proposal([[1, V]], None), "width"),
        (Proposal([[-1, 2]], None), "width"),
        (Proposal([[1, 2]], [EVEN[:1]]), "width"),
        (Proposal([[1, 2]], [EVEN[:, :-1]]), "width"),
        (Proposal([[1, 2]], [EVEN[0]]), "width"),
        (Proposal([[1, 2]], [law((1, 5, float("nan")))]), "nan"),
        (Proposal([[1, 2]], [law((0, 5, float("inf")))]), "nan"),
        (Proposal([[1, 2]], [EVEN * 1.1]), "law"),
        (Proposal([[1, 2]], [law((1, 5, 0.0))]), "law"),
        (Proposal([[1, 2]], [law((1, 5, -1 / V), (1, 6, 3 / V))]), "law"),
        (Proposal([[1, 2]], [law((1, 2, 0.0), (1, 5, 2 / V))]), "law"),
    ],
)
def test_a_proposal_is_checked_for_all_that_would_bend_the_law(
    proposal: Proposal, kind: str | None
) -> None:
    found = checked(proposal, [ask()], V)
    assert [wrong.kind for wrong in found] == ([] if kind is None else [kind])


class Odd(NoDrafter):
    """Drafts token 1, or does what it is told to do next."""

    kind = "odd"

    def __init__(self) -> None:
        self.next: list[Callable[[Sequence[Ask]], Proposal]] = []
        self.asked: list[list[int]] = []
        self.forgotten: list[int] = []
        self.observed: list[int] = []

    def propose(self, asks: Sequence[Ask]) -> Proposal:
        self.asked.append([ask.row for ask in asks])
        if self.next:
            return self.next.pop(0)(asks)
        return Proposal([[1] * ask.length for ask in asks], None)

    def observe(self, row: int, start: int, features: Tensor | None) -> None:
        self.observed.append(row)

    def forget(self, row: int) -> None:
        self.forgotten.append(row)


def raising(error: Exception) -> Callable[[Sequence[Ask]], Proposal]:
    def act(asks: Sequence[Ask]) -> Proposal:
        raise error

    return act


class Scene:
    def __init__(self) -> None:
        self.now = 0.0
        self.told: list[DrafterFault] = []
        self.odd = Odd()
        breaker = Breaker(lambda: self.now, faults=3, window=20, proving=3, cool_down_seconds=10)
        self.guard = Guarded(
            self.odd,
            vocab_size=V,
            clock=lambda: self.now,
            breaker=breaker,
            on_fault=self.told.append,
        )

    def takes(self, seconds: float) -> Callable[[Sequence[Ask]], Proposal]:
        def act(asks: Sequence[Ask]) -> Proposal:
            self.now += seconds
            return Proposal([[1]] * len(asks), None)

        return act

    def drafted(self, *rows: int) -> list[list[int]]:
        return self.guard.propose([ask(row) for row in rows]).ids


def test_an_exception_becomes_a_plain_request_and_a_fault_without_its_words() -> None:
    scene = Scene()
    scene.odd.next = [raising(ValueError(SECRET))]
    assert scene.drafted(0, 1) == [[], []]
    assert [fault.kind for fault in scene.told] == ["exception"]
    assert "ValueError" in scene.told[0].message
    assert "raising" in scene.told[0].message
    assert SECRET not in scene.told[0].message
    assert scene.odd.forgotten == [0, 1]
    # These decode plainly to their end, also where they move; a new one drafts.
    assert scene.drafted(0, 1, 2) == [[], [], [1, 1]]
    scene.guard.observe(0, 3, None)
    scene.guard.observe(2, 3, None)
    assert scene.odd.observed == [2]
    scene.guard.forget(0)
    scene.guard.move(1, 0)
    assert scene.drafted(0, 1) == [[], [1, 1]]
    scene.guard.forget(0)
    assert scene.drafted(0) == [[1, 1]]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError(), "memory"),
        (torch.OutOfMemoryError(SECRET), "memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "memory"),
        (RuntimeError("shapes"), "exception"),
        (AssertionError(), "exception"),
    ],
)
def test_exceptions_are_told_apart(error: Exception, kind: str) -> None:
    scene = Scene()
    scene.odd.next = [raising(error)]
    scene.drafted(0)
    assert [fault.kind for fault in scene.told] == [kind]


@pytest.mark.parametrize(
    ("ids", "second", "kind"),
    [
        ([1, 2], (1, 5, float("nan")), "nan"),
        ([1, 2], (1, 5, 0.0), "law"),
        ([1, 2], (1, 2, 0.0), "law"),
        ([1, V], None, "width"),
    ],
)
def test_what_stands_before_a_rows_first_wrong_step_stays_with_its_law(
    ids: list[int], second: tuple[int, int, float] | None, kind: str
) -> None:
    scene = Scene()
    wrong = EVEN if second is None else law(second)
    scene.odd.next = [lambda asks: Proposal([ids, [3, 3]], [wrong, EVEN])]
    proposal = scene.guard.propose([ask(0), ask(1)])
    assert proposal.ids == [[1], [3, 3]]
    assert proposal.probs is not None
    assert [None if each is None else each.shape[0] for each in proposal.probs] == [1, 2]
    assert [fault.kind for fault in scene.told] == [kind]
    assert scene.drafted(0, 1) == [[], [1, 1]]  # the wrong row alone decodes plainly from now on


def test_a_fault_behind_drawn_tokens_leaves_them_and_stops_their_rows() -> None:
    scene = Scene()
    scene.odd.next = [lambda asks: Proposal([[1], [1]], None, fault=("memory", "at a step"))]
    assert scene.drafted(0, 1) == [[1], [1]]
    assert [(fault.kind, fault.message) for fault in scene.told] == [("memory", "at a step")]
    assert scene.odd.forgotten == [0, 1]
    assert scene.guard.breaker.state is State.OPEN
    assert scene.drafted(0, 1) == [[], []]


def test_a_row_whose_first_step_is_not_finite_has_not_been_asked_in_vain() -> None:
    scene = Scene()
    scene.odd.next = [lambda asks: Proposal([[], [1], []], None, broken=(0, 1))]
    assert scene.guard.propose([ask(0), ask(1), ask(2)]).unasked == (0,)


def test_a_row_that_is_not_finite_goes_alone() -> None:
    scene = Scene()
    scene.odd.next = [lambda asks: Proposal([[], [1, 1]], None, broken=(0,))]
    assert scene.drafted(0, 1) == [[], [1, 1]]
    assert [fault.kind for fault in scene.told] == ["nan"]
    assert scene.drafted(0, 1) == [[], [1, 1]]


def test_after_three_faults_nobody_drafts_then_one_row_tries_then_all_do() -> None:
    scene = Scene()
    scene.odd.next = [raising(ValueError())] * 3
    for row in range(3):
        scene.drafted(row)
    states = [scene.guard.breaker.state]
    asked = len(scene.odd.asked)
    assert scene.drafted(5, 6) == [[], []]
    assert len(scene.odd.asked) == asked
    scene.now += 10
    assert [scene.drafted(5, 6) for _ in range(2)] == [[[1, 1], []]] * 2
    scene.guard.forget(5)  # it has ended; the row that moves there is another request
    scene.guard.move(7, 5)
    assert scene.drafted(6, 5) == [[1, 1], []]
    assert [*states, scene.guard.breaker.state] == [State.OPEN, State.CLOSED]
    assert scene.drafted(5, 6) == [[1, 1], [1, 1]]


def test_the_row_that_tries_goes_on_trying_where_it_moves() -> None:
    scene = Scene()
    scene.odd.next = [raising(MemoryError())]
    scene.drafted(0)
    scene.now += 10
    assert scene.drafted(3) == [[1, 1]]
    scene.guard.forget(1)
    scene.guard.move(3, 1)
    assert scene.drafted(3, 1, 2) == [[], [1, 1], []]


def test_a_drafter_ten_times_slower_than_the_target_is_left_alone_and_hurts_no_row() -> None:
    scene = Scene()
    scene.guard.timed_step(0.1)
    scene.odd.next = [scene.takes(1.5)] * 8
    assert [scene.drafted(0) for _ in range(8)] == [[[1]]] * 8
    assert [fault.kind for fault in scene.told] == ["slow"]
    assert scene.drafted(0) == [[]]
    scene.now += 10
    assert scene.drafted(0) == [[1, 1]]


def test_what_follows_the_rows_may_fail_too() -> None:
    scene = Scene()
    fails = raising(ValueError())
    scene.odd.observe = lambda row, *_: fails([])  # type: ignore[method-assign,assignment]
    scene.odd.move = scene.odd.observe  # type: ignore[method-assign,assignment]
    scene.odd.forget = scene.odd.observe  # type: ignore[method-assign,assignment]
    scene.guard.observe(0, 0, None)
    assert scene.drafted(0, 1) == [[], [1, 1]]
    scene.guard.move(1, 0)
    assert scene.drafted(0) == [[]]
    scene.guard.forget(0)
    assert len(scene.told) == 3


def test_a_drafter_that_is_fine_is_passed_through() -> None:
    scene = Scene()
    assert (scene.guard.kind, scene.guard.feature_layers) == ("odd", ())
    assert scene.guard.propose([]).ids == []
    assert scene.odd.asked == []
    for _ in range(100):
        assert scene.drafted(1, 0) == [[1, 1], [1, 1]]
    assert scene.told == []


class Hostile(NoDrafter):
    """A new kind of fault each time."""

    kind = "hostile"
    calls = 0

    def propose(self, asks: Sequence[Ask]) -> Proposal:
        self.calls += 1
        width = 300
        odd: list[Callable[[], object]] = [
            lambda: Proposal([[width + 5] * ask.length for ask in asks], None),
            lambda: Proposal([[1]] * (len(asks) + 1), None),
            lambda: 1 / 0,
            lambda: Proposal([[1]] * len(asks), [torch.full((1, width), float("nan"))] * len(asks)),
            lambda: None,
            lambda: Proposal([[1] * 40 for ask in asks], None),
        ]
        return odd[self.calls % len(odd)]()  # type: ignore[return-value]


def test_a_hostile_drafter_changes_no_output_of_an_engine(tmp_path: Path) -> None:
    target = load_target(toy_target_folder(tmp_path), dtype="float32")
    now = [0.0]
    hostile = Hostile()
    told: list[DrafterFault] = []
    guard = Guarded(
        hostile, vocab_size=target.vocab_size, clock=lambda: now[0], on_fault=told.append
    )
    outputs = []
    for drafter in (NoDrafter(), guard):
        engine = Engine(target, {"x": drafter}, default="x", slots=2, max_len=60)
        tokens: dict[str, list[int]] = {str(n): [] for n in range(30)}
        for n in range(30):
            engine.submit(Request(str(n), (5 + n, 6, 7), 12))
        while not engine.idle:
            now[0] += 1
            for event in engine.step():
                tokens[event.id].extend(event.token_ids)
        outputs.append(tokens)
    assert outputs[0] == outputs[1]
    assert {fault.kind for fault in told} >= {"width", "exception"}
    assert guard.breaker.opened >= 2
    assert hostile.calls < 30
