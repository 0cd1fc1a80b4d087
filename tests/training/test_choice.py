"""The old draft is kept only where it has demonstrably lost nothing."""

from __future__ import annotations

from typing import Any

import pytest

from speculation.records import Interval
from training.choice import Cause, choose


@pytest.mark.parametrize(
    ("compatible", "before", "now", "kind"),
    [
        (False, 0.6, Interval(0.6, 0.55, 0.65, 8), "scratch"),
        (True, None, Interval(0.6, 0.55, 0.65, 8), "warm"),
        (True, 0.6, None, "warm"),
        (True, 0.6, Interval(0.3, 0.2, 0.4, 8), "warm"),
        (True, 0.6, Interval(0.61, 0.55, 0.67, 8), "warm"),  # it may have lost 0.05
        (True, 0.6, Interval(0.61, 0.585, 0.63, 64), "keep"),
    ],
)
def test_the_choice_follows_from_what_is_shown_and_not_from_what_is_hoped(
    compatible: bool, before: float | None, now: Interval | None, kind: str
) -> None:
    choice = choose(compatible=compatible, before=before, now=now, margin=0.02)
    assert choice.kind == kind
    assert choice.why


SAME = Interval(0.61, 0.585, 0.63, 64)  # of 0.6 before: kept on a new release


@pytest.mark.parametrize("cause", ["release", "alarm", "refresh"])
@pytest.mark.parametrize("now", [None, SAME])
@pytest.mark.parametrize("compatible", [True, False])
def test_after_a_refusal_it_is_a_new_start_whatever_else(
    cause: Cause, now: Interval | None, compatible: bool
) -> None:
    more: dict[str, Any] = {"cause": cause, "failed": 1}
    choice = choose(compatible=compatible, before=0.6, now=now, margin=0.02, **more)
    assert choice.kind == "scratch"


@pytest.mark.parametrize("cause", ["alarm", "refresh"])
def test_for_requests_that_changed_nothing_is_kept(cause: Cause) -> None:
    choice = choose(compatible=True, before=0.6, now=SAME, margin=0.02, cause=cause)
    assert choice.kind == "warm"
