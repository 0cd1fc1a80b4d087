"""What to make of the old draft on a new release. A pure function; standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from speculation.records import Interval

Cause = Literal["release", "alarm", "refresh"]


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
    cause: Cause = "release",  # "alarm": requests drifted; "refresh": the clock
    failed: int = 0,  # candidates that the gate refused for this release already
) -> Choice:
    """Keep only what has demonstrably lost nothing on a new release; else train on from it, which
    costs less and gives more than a new start wherever the tokens are the same. Where that was
    tried and failed, a new start is what is left."""
    if not compatible:
        return Choice("scratch", "there is no old draft that fits this release")
    if failed:
        told = "a draft was" if failed == 1 else f"{failed} drafts were"
        return Choice("scratch", f"{told} refused by the gate for this release: a new start")
    if cause != "release":  # the evaluation prompts are what they were: it loses elsewhere
        why = (
            "requests are not what they were" if cause == "alarm" else "what it learns from is new"
        )
        return Choice("warm", f"the old draft fits, and {why}")
    if before is None or now is None:
        return Choice("warm", "the old draft fits, and how well it does here is not known")
    if now.low >= before - margin:
        return Choice(
            "keep",
            f"acceptance was {before:.3f} and is at worst {now.low:.3f}: nothing to regain",
        )
    return Choice("warm", f"acceptance was {before:.3f} and is {now.estimate:.3f} here")
