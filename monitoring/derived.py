"""What vLLM's counters say of acceptance: rounds, drafted and accepted, and not what was judged.

Pure. A drafted token is judged only if all before it in its round were accepted. Where every round
drafted K tokens that follows from what was accepted; where some drafted fewer it is between bounds,
and only the first position's hazard is exact: every round judged its first token. Tokens after the
end of a request are counted by vLLM as if they had been judged, so all of this reads a little low.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from speculation.records import Counts

EXACT = "every round drafted K tokens, so what was judged follows"
BOUNDED = "rounds were shorter than K: only the first position is exact, the rest is bounded"


@dataclass(frozen=True, slots=True)
class Derived:
    """alpha-hat from counters that hold no judged counts."""

    low: float
    high: float
    counts: Counts  # of the positions that are exact
    exact: bool

    @property
    def told(self) -> str:
        return EXACT if self.exact else BOUNDED


def derive(
    drafts: int, drafted: int, accepted: Sequence[int], *, draft_len: int = 0, emitted: int = 0
) -> Derived | None:
    """`drafts` rounds drafted and accepted so many tokens, these by position from 0.

    `draft_len` is K where it is known, else as many positions as there are. None without a round.
    ValueError where the counts cannot be of one another.

    >>> found = derive(100, 300, (80, 60, 45), draft_len=3)
    >>> (round(found.low, 4), found.high == found.low, found.counts.judged_per_position)
    (0.7708, True, (100, 80, 60))
    >>> found = derive(100, 270, (80, 60, 45), draft_len=3)
    >>> (round(found.low, 4), round(found.high, 4), found.counts.judged_per_position)
    (0.7708, 0.8645, (100,))
    """
    _check(drafts, drafted, accepted)
    if not drafts or not accepted:
        return None
    width = draft_len or len(accepted)
    kept = sum(accepted)
    last = accepted[width - 1] if len(accepted) >= width else 0
    if drafted == width * drafts and len(accepted) <= width:
        by_position = tuple(accepted) + (0,) * (width - len(accepted))
        judged = (drafts, *by_position[:-1])
        alpha = kept / sum(judged)
        counts = Counts(drafts, 0, drafted, emitted, judged, by_position)
        return Derived(alpha, alpha, counts, True)
    left = drafted - kept  # drafted and not accepted: each round that ended early left some
    most = min(drafts - last, left)  # rounds that can have rejected a token
    least = min(-(-left // width), most)
    first = Counts(drafts, 0, drafted, emitted, (drafts,), (accepted[0],))
    return Derived(_share(kept, most), _share(kept, least), first, False)


def _share(kept: int, rejected: int) -> float:
    return kept / (kept + rejected) if kept + rejected else 0.0


def _check(drafts: int, drafted: int, accepted: Sequence[int]) -> None:
    if drafts > drafted:
        raise ValueError(
            f"got {drafts} rounds that drafted {drafted} tokens, wanted one or more each"
        )
    if sum(accepted) > drafted:
        raise ValueError(f"got {sum(accepted)} tokens accepted of {drafted} drafted")
    before = drafts
    for position, kept in enumerate(accepted):
        if kept > before:
            raise ValueError(
                f"got {kept} accepted at position {position} and {before} before it, "
                "wanted no more than before"
            )
        before = kept
