"""What drafters are asked and what they answer: the narrow seam between engine and drafters.

A drafter follows the engine's rows: it sees the target's states of committed tokens, proposes for
chosen rows, and moves or forgets rows as the engine does. Token ids only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from speculation.breaker import FaultKind
from speculation.history import Past
from speculation.sampling import Sampling


class DraftError(ValueError):
    """A draft that cannot serve this target: what was found, what was wanted, what to do."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One row's wish for drafted tokens.

    A row's context only grows, at its end, until the row is forgotten or another moves onto it.
    """

    row: int
    context: Sequence[int]  # prompt and all committed tokens
    length: int  # tokens wanted, at least 1
    sampling: Sampling
    seed: int
    choice: int = 0  # of a request's n
    # Penalties, bias and bans, for drafts that take them into account. A copy, as the context is:
    # whatever is done to it hurts nobody.
    past: Past | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """Drafted tokens of each asked row, at most as many as asked for.

    Where a drafter fails half-way, what it drew before stays, with its laws. That a step fails may
    depend on the tokens drawn before it (an embedding that is not finite, say): were they dropped
    for it, those that remain would no longer come from their law. To stop is no such choice.
    """

    ids: list[list[int]]
    # Per row [drafted, V], the law its tokens were drawn from; None: one-hot at those tokens. None
    # in place of the list: all rows are one-hot.
    probs: Sequence[Tensor | None] | None
    broken: tuple[int, ...] = ()  # places of rows that gave NaN or infinity behind their tokens
    unasked: tuple[int, ...] = ()  # that a guard did not ask, or whose answer was only a fault
    fault: tuple[FaultKind, str] | None = None  # what was raised behind all rows' tokens, named


class Drafter(Protocol):
    kind: str

    @property
    def feature_layers(self) -> tuple[int, ...]:
        """The target's layers whose inputs this drafter reads; empty for none."""

    def observe(self, row: int, start: int, features: Tensor | None) -> None:
        """The target's states [T, 3H] of `row`'s committed positions from `start` on."""

    def unread(self, row: int, length: int) -> int:
        """How many of `row`'s `length` committed tokens it has yet to read before it can draft."""

    def propose(self, asks: Sequence[Ask]) -> Proposal:
        """Draft for these rows, in any order; a row may get fewer tokens than wanted, or none."""

    def move(self, source: int, row: int) -> None:
        """Row `source` is row `row` from now on."""

    def forget(self, row: int) -> None:
        """Row `row`'s sequence has ended."""


class NoDrafter:
    """Plain decoding."""

    kind = "none"
    feature_layers: tuple[int, ...] = ()

    def observe(self, row: int, start: int, features: Tensor | None) -> None:
        pass

    def unread(self, row: int, length: int) -> int:
        return 0

    def propose(self, asks: Sequence[Ask]) -> Proposal:
        return Proposal([[] for _ in asks], None)

    def move(self, source: int, row: int) -> None:
        pass

    def forget(self, row: int) -> None:
        pass


def among(
    asks: Sequence[Ask],
    able: Callable[[Ask], bool],
    propose: Callable[[Sequence[Ask]], Proposal],
) -> Proposal:
    """What `propose` gives for those of `asks` that are `able`; the others get nothing."""
    places = [place for place, ask in enumerate(asks) if able(ask)]
    if not places:
        return Proposal([[] for _ in asks], None)
    return spread(propose([asks[place] for place in places]), places, len(asks))


def spread(proposal: Proposal, places: Sequence[int], count: int) -> Proposal:
    """A proposal for the asks at `places` as one for all `count` asks; the others get nothing."""
    if len(places) == count:
        return proposal
    ids: list[list[int]] = [[] for _ in range(count)]
    probs: list[Tensor | None] = [None] * count
    for place, found in zip(places, proposal.ids, strict=True):
        ids[place] = found
    for place, law in zip(places, proposal.probs or (), strict=False):
        probs[place] = law
    broken = tuple(places[place] for place in proposal.broken)
    laws = None if proposal.probs is None else probs
    return Proposal(ids, laws, broken, proposal.unasked, proposal.fault)
