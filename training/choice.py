"""What to make of the old draft on a new release. A pure function; standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from speculation.records import Interval


@dataclass(frozen=True, slots=True)
class Choice:
    """`keep` the old draft, train on from it (`warm`), or train a new one (`scratch`)."""

    kind: Literal["keep", "warm", "scratch"]
    why: str


def choose(
    *,
    compatible: bool,  # the old draft's tokens and shapes are the new release's
    before: float | None,  # its acceptance on the release it was validated for
    now: Interval | None,  # on the new release; None where it was not measured
    margin: float,  # what counts as the same acceptance, as the gate counts it
) -> Choice:
    """Keep only what has demonstrably lost nothing; else train on from it, which costs less and
    gives more than a new start wherever the tokens are the same."""
    if not compatible:
        return Choice("scratch", "there is no old draft that fits this release")
    if before is None or now is None:
        return Choice("warm", "the old draft fits, and how well it does here is not known")
    if now.low >= before - margin:
        return Choice(
            "keep",
            f"acceptance was {before:.3f} and is at worst {now.low:.3f}: nothing to regain",
        )
    return Choice("warm", f"acceptance was {before:.3f} and is {now.estimate:.3f} here")
