"""The slope of a long run, on runs whose slope is known."""

from __future__ import annotations

import pytest

from tests.serving.leaking import Look, slope


def test_the_slope_is_of_what_comes_after_the_filling() -> None:
    filling = [Look(done, 1_000_000 * done, done) for done in range(0, 100, 10)]
    noise = (0, 900, -900, 0)
    steady = [Look(done, 50_000_000 + 300 * done, 9) for done in range(100, 200, 10)]
    found = slope([*filling, *steady], after=100)
    assert found.memory_bytes == pytest.approx(300)
    assert found.handles == pytest.approx(0, abs=1e-9)
    assert "47.7 MiB after 100" in str(found)
    assert "+0.286 MiB" in str(found)
    shaken = [
        Look(look.done, look.memory_bytes + noise[place % 4], 9)
        for place, look in enumerate(steady)
    ]
    assert slope(shaken, after=100).memory_bytes == pytest.approx(300, abs=20)


def test_one_leak_at_the_end_is_no_flat_run() -> None:
    """The least growth of any part would call it one."""
    looks = [Look(done, 10**6 * (done > 150), 9) for done in range(100, 201, 10)]
    assert slope(looks, after=100).memory_bytes > 10_000
