"""The old draft is kept only where it has demonstrably lost nothing."""

from __future__ import annotations

import pytest

from speculation.records import Interval
from training.choice import choose


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
