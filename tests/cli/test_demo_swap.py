"""What a load says of a swap: how many requests were under way, and when it was."""

from __future__ import annotations

from typing import Any

import pytest

from cli.demo_swap import Load, swapped_at


def told(*swaps: tuple[str, str, float]) -> dict[str, Any]:
    return {"swaps": [{"outcome": o, "pair": p, "at": at} for o, p, at in swaps]}


def test_only_requests_begun_before_and_ended_after_the_moment_were_in_flight() -> None:
    load = Load([(1.0, 2.0, True), (1.5, 4.0, True), (2.5, 3.5, False), (3.0, 5.0, True)])
    assert [load.in_flight_at(moment) for moment in (0.5, 1.75, 3.25, 4.5, 6.0)] == [0, 2, 3, 1, 0]
    assert load.failed == 1


@pytest.mark.parametrize(
    ("told", "moment"),
    [
        (told(("swapped", "old", 1.0), ("swapped", "new", 2.0)), 2.0),
        (told(("swapped", "old", 1.0), ("failed", "new", 2.0), ("swapped", "new", 3.0)), 3.0),
        (told(("swapped", "new", 1.0)), None),  # the server began with it
        (told(("swapped", "new", 1.0), ("swapped", "other", 2.0)), None),
        ({}, None),
    ],
)
def test_a_swap_is_seen_only_where_the_server_served_another_pair_before(
    told: dict[str, Any], moment: float | None
) -> None:
    assert swapped_at(told, "new") == moment
