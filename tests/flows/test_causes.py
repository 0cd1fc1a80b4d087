"""What an alarm advises is what the flows do."""

from __future__ import annotations

from flows.ladder import DEAD, LEARN_AGAIN, answer
from monitoring.causes import CAUSES


def advising(action: str) -> set[str]:
    return {name for name, row in CAUSES.items() if row.action == action}


def test_the_action_that_an_alarm_advises_is_the_one_that_is_taken() -> None:
    assert advising("retrain") == set(LEARN_AGAIN)
    assert advising("roll back") == set(DEAD)


def test_what_asks_for_no_action_gets_none() -> None:
    for cause in advising("leave") | advising("rebaseline") | advising("add replicas"):
        (step,) = answer(cause, {"serving": True})
        assert step["kind"] == "note"
