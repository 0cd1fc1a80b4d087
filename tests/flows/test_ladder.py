"""What an alarm asks for: each cause under each state of things; and when to go back up."""

from __future__ import annotations

from typing import Any

import pytest

from flows.ladder import BETWEEN_RELOADS, QUIET_SECONDS, answer, climb
from monitoring.causes import CAUSES
from registry.versions import CHAMPION, ROLLED_BACK, STANDS_IN, PairVersion

FACTS: dict[str, Any] = {
    **{"serving": True, "drafter": "head", "draft_len": 4, "earlier": "v1", "servers": True},
    **{"reloaded": None, "lowered": False, "coming": False, "known": True, "loses": False},
    **{"may_retrain": "", "may_turn": ""},
}
NO = "the breaker is open"


@pytest.mark.parametrize(
    ("cause", "facts", "kinds"),
    [
        ("dead_draft", {}, ["reload"]),
        ("dead_draft", {"servers": False}, ["roll_back"]),
        ("dead_draft", {"reloaded": BETWEEN_RELOADS - 1}, ["roll_back"]),
        ("dead_draft", {"reloaded": BETWEEN_RELOADS}, ["reload"]),
        ("dead_draft", {"reloaded": -5.0}, ["reload"]),  # the clock was put back
        ("dead_draft", {"servers": False, "earlier": ""}, ["fall_back"]),
        ("dead_draft", {"servers": False, "may_turn": NO}, ["ask"]),
        ("dead_draft", {"drafter": "ngram"}, ["note"]),
        ("dead_draft", {"serving": False}, ["note"]),
        ("drift", {}, ["retrain"]),
        ("drift", {"loses": True}, ["steer", "retrain"]),
        ("drift", {"loses": True, "servers": False}, ["retrain"]),
        ("drift", {"may_retrain": NO}, ["ask"]),
        ("drift", {"serving": False}, ["note"]),
        ("external", {}, ["retrain"]),
        ("release_mismatch", {}, ["steer", "retrain"]),
        ("release_mismatch", {"serving": False}, ["steer", "retrain"]),
        ("release_mismatch", {"coming": True}, ["steer", "note"]),
        ("release_mismatch", {"known": False}, ["steer", "ask"]),
        ("no_gain", {}, ["steer"]),
        ("no_gain", {"draft_len": 1}, ["fall_back"]),
        ("no_gain", {"lowered": True}, ["fall_back"]),
        ("no_gain", {"servers": False}, ["fall_back"]),
        ("no_gain", {"lowered": True, "may_turn": NO}, ["ask"]),
        ("drafter_fault", {}, ["reload"]),
        ("drafter_fault", {"reloaded": 1.0}, ["ask"]),
        ("mix_shift", {}, ["note"]),
        ("engine_change", {}, ["note"]),
        ("capacity", {}, ["note"]),
        ("a new cause", {}, ["note"]),
    ],
)
def test_a_cause_leads_to_its_steps(cause: str, facts: dict[str, Any], kinds: list[str]) -> None:
    steps = answer(cause, FACTS | facts)
    assert [step["kind"] for step in steps] == kinds
    assert all(step["why"] for step in steps)


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_that_monitoring_raises_has_an_answer(cause: str) -> None:
    assert answer(cause, FACTS)


def test_falling_back_goes_to_ngram_and_turning_off_goes_to_none() -> None:
    (dead,) = answer("dead_draft", FACTS | {"servers": False, "earlier": ""})
    (idle,) = answer("no_gain", FACTS | {"lowered": True})
    assert (dead["to"], idle["to"]) == ("ngram", "none")


def pair(version: int, kind: str = "head", **tags: str) -> PairVersion:
    told = {{"left": ROLLED_BACK, "stands_in": STANDS_IN}[name]: why for name, why in tags.items()}
    return PairVersion(
        "line", version, f"p-{version}", "d", kind, "PASS", (CHAMPION,), told, "", "", 0.0
    )


STANDS = pair(9, "none", stands_in="no gain")
LEFT = pair(2, left="alarm a-1: no_gain")
ANSWERED = {"what": "answered", "at": 0.0, "kinds": ["fall_back"], "cause": "no_gain"}


def test_back_up_goes_what_was_left_for_another_cause_than_a_dead_draft_after_a_quiet_time() -> (
    None
):
    state = STANDS, [STANDS, LEFT], [ANSWERED]
    assert climb(*state, now=QUIET_SECONDS - 1) is None
    assert climb(*state, now=QUIET_SECONDS) == LEFT


@pytest.mark.parametrize(
    ("champion", "other", "past"),
    [
        (LEFT, STANDS, []),
        (STANDS, pair(2, left="alarm a-1: dead_draft"), []),
        (STANDS, pair(2, left="rolled back by hand"), []),
        (STANDS, pair(2), []),
        (STANDS, LEFT, [{"what": "climbed", "at": 0.0, "version": 2}]),
        (None, LEFT, []),
    ],
    ids=["serves", "was dead", "by hand", "was never left", "went up before", "none serves"],
)
def test_up_goes_nothing_else(
    champion: PairVersion | None, other: PairVersion, past: list[dict[str, Any]]
) -> None:
    assert climb(champion, [other], past, now=10 * QUIET_SECONDS) is None
