"""How a round is counted, also where K goes beyond the pairing's own."""

from __future__ import annotations

from typing import Any, cast

from speculation.sequence import Request, Running

UNUSED = cast(Any, None)  # of sampling, which counts nothing


def running(draft_len: int) -> Running:
    return Running(Request("a", (1, 2), 64), "x", draft_len, 0.0, UNUSED, UNUSED)


def test_both_counts_are_as_long_as_what_was_judged_where_k_adapts_beyond_its_own() -> None:
    sequence = running(2)
    sequence.count_round(6, 4, 5, ended=False)  # the fifth was judged and rejected
    counts = sequence.counts()
    assert counts.judged_per_position == (1, 1, 1, 1, 1)
    assert counts.accepted_per_position == (1, 1, 1, 1, 0)
    assert counts.hazards == (1.0, 1.0, 1.0, 1.0, 0.0)


def test_a_shorter_round_later_leaves_what_was_counted() -> None:
    sequence = running(4)
    sequence.count_round(6, 6, 7, ended=False)
    sequence.count_round(3, 0, 1, ended=False)
    sequence.count_round(4, 2, 2, ended=True)  # ended by the second accepted token
    counts = sequence.counts()
    assert (counts.rounds, counts.drafted) == (3, 11)
    assert counts.judged_per_position == (3, 2, 1, 1, 1, 1)
    assert counts.accepted_per_position == (2, 2, 1, 1, 1, 1)
