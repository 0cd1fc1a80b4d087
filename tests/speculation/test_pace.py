"""K pays its way: on a made-up server, at every acceptance and load, and when these change.

What is scored are true seconds, so the bounds hold what deciding wrongly costs, and learning,
probing and reading prompts with it. Timings as `Pace` sees them are 8 % off, drift by half and
stall twentyfold in 2 % of rounds (pace_simulation.py).
"""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from speculation.pace import Pace
from speculation.seats import Outcome, RequestPace, Seat, State, Timing
from tests.speculation.pace_simulation import (
    ALPHAS,
    SETTINGS,
    Machine,
    Told,
    Traffic,
    always,
    best_fixed,
    serve,
)

CHEAP, DEAR = Machine(draft=0.08), Machine(draft=0.45)
WIDE = Machine(draft=0.06, knee=200.0)  # a batch of eight costs hardly more than one
NARROW = Machine(draft=0.1, knee=16.0)  # at a batch of sixteen drafting does not pay


def run(
    pace: Pace | int,
    alpha: float,
    machine: Machine,
    rows: int,
    *,
    requests: int = 200,
    skip_rounds: int = 100,
    stalls: bool = True,
) -> Told:
    return serve(
        pace,
        always(Traffic(alpha, tokens=30.0, prompt=60)),
        machine=machine,
        batch=always(rows),
        requests=requests,
        skip_rounds=skip_rounds,
        stalls=stalls,
    )


def most_in_any(steps: list[int], window: int) -> int:
    return max(
        (
            sum(first <= step < first + window for step in steps[n:])
            for n, first in enumerate(steps)
        ),
        default=0,
    )


# Where drafting pays little or nothing; the whole grid is `slow`.
@pytest.mark.parametrize(
    ("machine", "alpha", "rows"),
    [(DEAR, 0.3, 1), (DEAR, 0.6, 8), (NARROW, 0.0, 1), (NARROW, 0.6, 16), (NARROW, 0.9, 16)],
)
def test_after_a_hundred_rounds_it_is_never_slower_than_plain_by_three_percent(
    machine: Machine, alpha: float, rows: int
) -> None:
    told = run(Pace(), alpha, machine, rows)
    assert told.speedup > 0.97


# A look takes a twelfth of a plain forward; where it never finds anything, it is all that is spent.
@pytest.mark.parametrize(("rows", "proposes"), [(1, 0.0), (1, 0.1), (8, 0.0), (8, 0.3)])
def test_a_draft_that_seldom_has_anything_to_propose_is_asked_only_where_that_pays(
    rows: int, proposes: float
) -> None:
    machine = Machine(draft=0.0, looking=0.08)
    traffic = always(Traffic(0.6, tokens=30.0, prompt=0, proposes=proposes))
    told, fixed = (
        serve(
            policy, traffic, machine=machine, batch=always(rows), requests=120, skip_rounds=100
        ).speedup
        for policy in (Pace(), 4)
    )
    assert told > max(0.97, 0.95 * fixed)


@pytest.mark.parametrize(
    ("machine", "alpha", "rows"),
    [(CHEAP, 0.5, 1), (DEAR, 0.85, 1), (WIDE, 0.4, 8), (WIDE, 0.8, 8)],
)
def test_where_drafting_pays_it_is_within_five_percent_of_the_best_fixed_k(
    machine: Machine, alpha: float, rows: int
) -> None:
    best = max(run(k, alpha, machine, rows).speedup for k in (1, 2, 4, 8))
    assert best > 1.1
    assert run(Pace(), alpha, machine, rows).speedup > 0.95 * best


@pytest.mark.slow
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_over_the_whole_grid_it_loses_to_neither_plain_nor_the_best_fixed_k(
    setting: str, alpha: float
) -> None:
    machine, rows = SETTINGS[setting]
    traffic, batch = always(Traffic(alpha)), always(rows)
    pace = Pace()
    told = serve(pace, traffic, machine=machine, batch=batch, requests=300, skip_rounds=100)
    _, best = best_fixed(traffic, machine=machine, batch=batch, requests=300)
    assert told.speedup > 0.97
    assert told.speedup > 0.95 * best
    assert most_in_any(told.probes, 1000) <= 10


# In the second, reading a prompt takes the draft as long as a hundred rounds.
@pytest.mark.parametrize("machine", [CHEAP, Machine(draft=0.1, reading=0.1)])
def test_probes_are_at_most_ten_of_any_thousand_steps_and_a_hundredth_of_the_time(
    machine: Machine,
) -> None:
    traffic = always(Traffic(0.0, tokens=60.0, prompt=1000))
    told = serve(Pace(), traffic, machine=machine, batch=always(1), requests=60, skip_rounds=100)
    assert len(told.states) > 2500
    assert told.probes
    assert most_in_any(told.probes, 1000) <= 10
    assert told.speedup > 0.98


@pytest.mark.parametrize(
    ("alpha", "rows", "tokens"),
    [(0.5, 1, 60.0), (0.8, 8, 60.0), (0.9, 4, 20.0)],
)
def test_a_draft_that_goes_dead_is_off_by_rejection_within_twenty_requests(
    alpha: float, rows: int, tokens: float
) -> None:
    pace, dead_from = Pace(), 60
    told = serve(
        pace,
        lambda number: Traffic(alpha if number < dead_from else 0.0, tokens=tokens),
        machine=WIDE,
        batch=always(rows),
        requests=dead_from + 40,
    )
    assert pace.state is State.OFF_BY_REJECTION
    assert pace.rejected_off == 1
    begun = told.begun[dead_from]
    off = told.states.index(State.OFF_BY_REJECTION)
    assert off > begun
    # Of those that ended meanwhile, all but one of the batch that was running were dead.
    assert sum(begun <= step < off for step in told.ended) - (rows - 1) <= 20


def test_a_draft_that_never_worked_is_off_within_its_first_hundred_rounds_or_so() -> None:
    pace = Pace()
    told = run(pace, 0.0, CHEAP, 1, skip_rounds=0)
    assert pace.state is State.OFF_BY_REJECTION
    assert sum(length > 0 for length in told.drafted_steps[:200]) <= 100
    assert sum(length > 0 for length in told.drafted_steps[200:1200]) <= 20


@pytest.mark.parametrize(("rows", "requests"), [(1, 260), (8, 700)])
def test_it_comes_back_when_acceptance_does(rows: int, requests: int) -> None:
    pace = Pace()
    told = serve(
        pace,
        lambda number: Traffic(0.0 if number < 60 else 0.8),
        machine=WIDE,
        batch=always(rows),
        requests=requests,
    )
    assert pace.rejected_off == 1
    assert pace.state is State.DRAFTING
    assert pace.switches == 2
    drafting = [length > 0 for length in told.drafted_steps]
    assert sum(drafting[-300:]) > 270


def test_it_comes_back_within_a_few_rounds_when_the_load_falls() -> None:
    pace, busy = Pace(), range(600, 1400)
    told = serve(
        pace,
        always(Traffic(0.7)),
        machine=NARROW,
        batch=lambda step: 16 if step in busy else 1,
        requests=700,
    )
    assert told.states[1399] is State.OFF_BY_COST
    assert max(told.drafted_steps[1395:1400]) == 0
    assert sum(length > 0 for length in told.drafted_steps[1400:1420]) >= 15
    assert pace.rejected_off == 0


@pytest.mark.parametrize(
    "draft", [0.40, *(pytest.param(each, marks=pytest.mark.slow) for each in (0.36, 0.44))]
)
def test_near_break_even_it_does_not_thrash(draft: float) -> None:
    pace = Pace()
    told = run(pace, 0.4, Machine(draft=draft), 1, requests=250)
    assert told.speedup > 0.98
    assert pace.switches <= 2 + len(told.states) / 1000


def test_a_load_that_swings_every_few_rounds_does_not_make_it_thrash_within_a_load() -> None:
    pace = Pace()
    told = serve(
        pace,
        always(Traffic(0.5)),
        machine=NARROW,
        batch=lambda step: 16 if step // 10 % 2 else 1,
        requests=800,
        skip_rounds=100,
    )
    assert told.speedup > 0.97
    alone = [k for n, k in enumerate(told.drafted_steps) if n > 1000 and n // 10 % 2 == 0]
    crowded = [k for n, k in enumerate(told.drafted_steps) if n > 1000 and n // 10 % 2]
    # Not in all: it is one request's turn, whose own acceptance may not pay.
    assert sum(k > 0 for k in alone) > 0.6 * len(alone)
    assert sum(k > 0 for k in crowded) < 0.1 * len(crowded)


def test_stalls_cost_next_to_nothing() -> None:
    with_stalls = run(Pace(), 0.7, CHEAP, 1)
    calm = run(Pace(), 0.7, CHEAP, 1, stalls=False)
    assert with_stalls.speedup > 0.98 * calm.speedup


def taught(alpha: int = 70, rounds: int = 400) -> Pace:
    """A `Pace` that has seen many requests, with `alpha` % kept at each position."""
    pace = Pace()
    for number in range(rounds):
        request = RequestPace()
        seat = Seat(request, budget=100)
        length = pace.draft_lens([seat], batch=1, context=100)[0]
        # Low-discrepancy luck: the same at every run, and as good as its share.
        accepted = 0
        while accepted < length and (number * 61 + accepted * 37) % 100 < alpha:
            accepted += 1
        pace.observe(timing(1, length), [Outcome(request, min(accepted + 1, length), accepted)])
        if number % 20 == 0:
            pace.finish(request, 60)
    return pace


def timing(
    batch: int, length: int, *, draft_seconds: float | None = None, caught_up: int = 0
) -> Timing:
    """A round of the cheap machine, in which every row drafted `length` tokens."""
    return Timing(
        batch=batch,
        context=100,
        width=length + 1,
        target_seconds=0.02 * CHEAP.target(batch, length + 1),
        draft_seconds=draft_seconds or 0.02 * CHEAP.drafting(batch, length),
        overhead_seconds=0.02 * CHEAP.overhead,
        drafted=length,
        drafting=batch if length else 0,
        caught_up=caught_up,
    )


def test_a_draft_that_was_off_by_rejection_is_known_to_be_back_after_some_ten_rounds() -> None:
    pace = taught(alpha=0, rounds=1000)
    assert pace.state is State.OFF_BY_REJECTION
    assert pace.hazards[0] < 0.1
    for _ in range(10):
        pace.observe(timing(1, 4), [Outcome(RequestPace(), 4, 4)])
    assert pace.hazards[0] > 0.5
    assert pace.draft_lens([Seat(RequestPace(), 100)], batch=1, context=100)[0] > 0


def test_a_machine_on_which_width_becomes_dear_is_noticed_while_drafting() -> None:
    # Requests alike: none is plain for reasons of its own, which would show what plain costs.
    pace, alike = Pace(), always(Traffic(0.6, correlation=0.001, tokens=30.0, prompt=60))
    before = serve(pace, alike, machine=CHEAP, batch=always(1), requests=150)
    assert before.states[-1] is State.DRAFTING
    crowded = Machine(draft=0.3, knee=1.5)  # another process took the cores
    told = serve(pace, alike, machine=crowded, batch=always(1), requests=200, skip_rounds=100)
    assert told.speedup > 0.97
    assert pace.state is State.OFF_BY_COST


def test_old_rounds_are_forgotten_and_new_ones_believed() -> None:
    pace = Pace()
    for accepted in [1] * 2000 + [0] * 700:
        pace.observe(timing(1, 1), [Outcome(RequestPace(), 1, accepted)])
    assert pace.hazards[0] < 0.15


def usual(pace: Pace, seats: list[Seat], *, batch: int, width: int = 1) -> list[int]:
    """The K of most rounds, rounds that try something else aside."""
    found = Counter(
        tuple(pace.draft_lens(seats, batch=batch, context=100, width=width)) for _ in range(9)
    )
    return list(found.most_common(1)[0][0])


def test_lengths_beside_the_best_and_plain_rounds_are_tried_now_and_then() -> None:
    pace, seats = taught(), [Seat(RequestPace(), 100)]
    best = usual(pace, seats, batch=1)[0]
    tried = Counter(pace.draft_lens(seats, batch=1, context=100)[0] for _ in range(200))
    assert tried[best] > 150
    assert {0, best - 1, best + 1} <= set(tried)


def shown(pace: Pace, judged: int, accepted: int, rounds: int = 12) -> RequestPace:
    """A request that has had so many rounds like this one."""
    request = RequestPace()
    for _ in range(rounds):
        pace.observe(timing(1, judged), [Outcome(request, judged, accepted)])
    return request


def test_the_same_observations_give_the_same_k() -> None:
    first, second = (run(Pace(), 0.6, CHEAP, 1, requests=60) for _ in range(2))
    assert first.drafted_steps == second.drafted_steps
    assert first.states == second.states


def test_a_request_alone_gets_a_k_of_its_own() -> None:
    pace = taught()
    good, bad = shown(pace, 6, 6), shown(pace, 1, 0)
    fresh = usual(pace, [Seat(RequestPace(), 100)], batch=1)[0]
    assert usual(pace, [Seat(good, 100)], batch=1)[0] > fresh
    assert usual(pace, [Seat(bad, 100)], batch=1)[0] < fresh


def test_rows_of_a_batch_share_one_k_within_their_budgets() -> None:
    pace = taught()
    seats = [Seat(RequestPace(), budget) for budget in (100, 100, 2, 1)]
    lens = usual(pace, seats, batch=4)
    assert lens[0] == lens[1] > 1
    assert lens[2:] == [1, 0]


def test_a_forward_that_is_wide_in_any_case_is_used() -> None:
    pace = taught(alpha=45)
    for _ in range(30):  # width is dear here, and so K small
        pace.observe(Timing(4, 100, 9, 0.08, 0.0, 0.001))
        pace.observe(Timing(4, 100, 1, 0.02, 0.0, 0.001))
    seats = [Seat(RequestPace(), 100)]
    narrow = usual(pace, seats, batch=4)[0]
    wide = usual(pace, seats, batch=4, width=9)[0]
    assert wide > narrow


def test_a_long_prompt_is_not_read_for_a_short_answer() -> None:
    pace = taught()
    for _ in range(6):  # a token read by the draft takes a twentieth of a round
        pace.observe(timing(1, 4, draft_seconds=1.0064, caught_up=1000))
    for _ in range(60):
        pace.finish(RequestPace(), 40)
    long, short = Seat(RequestPace(), 1000, behind=4000), Seat(RequestPace(), 1000, behind=20)
    assert usual(pace, [long], batch=1) == [0]
    assert usual(pace, [short], batch=1)[0] > 0
    lens = usual(pace, [long, short], batch=2)
    assert lens[0] == 0
    assert lens[1] > 0


def test_what_rows_at_a_fixed_k_show_counts_too() -> None:
    pace = taught(alpha=70)
    before = pace.hazards[0]
    for _ in range(200):  # rows with a seed: never asked for, only told of
        pace.observe(timing(1, 5), [Outcome(RequestPace(), 1, 0)])
    assert pace.hazards[0] < before / 1.5


def test_positions_never_judged_follow_the_last_that_were_so_that_k_can_grow() -> None:
    pace = Pace()
    for _ in range(100):
        pace.observe(timing(1, 1), [Outcome(RequestPace(), 1, 1)])
    assert pace.hazards[0] > 0.95
    assert pace.hazards[8] == pytest.approx(pace.hazards[0], abs=0.02)
    for _ in range(100):
        pace.observe(timing(1, 2), [Outcome(RequestPace(), 2, 1)])
    assert pace.hazards[1] < 0.05
    assert pace.hazards[8] < 0.05


def test_plain_rounds_and_rows_without_a_draft_teach_no_acceptance() -> None:
    pace = taught()
    before = pace.hazards
    for _ in range(50):
        pace.observe(timing(1, 0), [Outcome(RequestPace(), 0, 0)])
    assert pace.hazards == before


def test_the_predicted_speed_is_the_true_one_within_five_percent() -> None:
    pace = taught(alpha=70, rounds=600)
    predicted = pace.speedups(1, 100)
    assert predicted is not None
    plain = CHEAP.round(1, 0, 0)
    expected = list(itertools.accumulate(pace.hazards, lambda s, h: s * h, initial=1.0))
    for length in (1, 2, 3, 4):
        true = sum(expected[: length + 1]) * plain / CHEAP.round(1, 1, length)
        assert predicted[length] == pytest.approx(true, rel=0.05)


def test_k_stays_within_what_was_allowed() -> None:
    pace = Pace(most=3)
    told = run(pace, 0.95, CHEAP, 1, requests=40)
    assert max(told.drafted_steps) == 3


@pytest.mark.parametrize("most", [0, 17])
def test_a_k_that_no_cache_has_room_for_is_refused(most: int) -> None:
    with pytest.raises(ValueError, match=f"most {most}: wanted 1 to 16"):
        Pace(most=most)
