"""Bodies that are held together are bounded, and long ones keep no short one out."""

from __future__ import annotations

from contextlib import ExitStack, suppress

import pytest

from serving.reading import SMALL_BYTES, TOGETHER, Bodies
from serving.tickets import QueueFullError

LONGEST = 2 * SMALL_BYTES


def test_no_more_is_held_than_so_many_of_the_longest_and_all_of_it_is_let_go() -> None:
    bodies = Bodies(LONGEST)
    with ExitStack() as opened:
        for _ in range(TOGETHER):
            grown = opened.enter_context(bodies.room())
            for size in (1, SMALL_BYTES, LONGEST):
                grown(size)
        assert bodies.held_bytes == TOGETHER * LONGEST
        with bodies.room() as grown:
            grown(SMALL_BYTES)
            with pytest.raises(QueueFullError):
                grown(SMALL_BYTES + 1)
    assert bodies.held_bytes == 0
    with suppress(OSError), bodies.room() as grown:
        grown(LONGEST // 2)
        raise OSError("its client has left")
    assert bodies.held_bytes == 0
