"""Which drafter drafts for which row, each behind a guard, so that an odd one hurts no request.

Knows drafters by name and the sequences they draft for; nothing of the target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from speculation.breaker import DrafterFault
from speculation.guard import Guarded
from speculation.proposal import Ask, Drafter
from speculation.read import Read
from speculation.sequence import Running

# Told which drafter, by name, did what wrong; never any token.
OnFault = Callable[[str, DrafterFault], None]


def ignore(drafter: str, fault: DrafterFault) -> None:
    """For who does not want to know."""


@dataclass(frozen=True, slots=True)
class Drafted:
    """What a round's drafters gave."""

    ids: list[list[int]]  # of each row, as many as it was to have at most
    laws: list[Tensor | None]  # of each row, [drafted, V] that they came from; None: one-hot
    asked: list[bool]  # whether the row's drafter was asked, and in order
    seconds: Mapping[str, float]  # that each drafter took which was


class Drafting:
    """The drafters of one engine."""

    def __init__(
        self,
        drafters: Mapping[str, Drafter],
        *,
        vocab_size: int,
        read: Read,
        clock: Callable[[], float],
        on_fault: OnFault = ignore,
    ) -> None:
        def guarded(name: str, drafter: Drafter) -> Guarded:
            return Guarded(
                drafter,
                vocab_size=vocab_size,
                clock=clock,
                on_fault=lambda fault: on_fault(name, fault),
            )

        self._clock, self._read = clock, read
        self.guarded = {name: guarded(name, drafter) for name, drafter in drafters.items()}

    def timed_step(self, seconds: float) -> None:
        """One round's forward of the target took this long."""
        for drafter in self.guarded.values():
            drafter.timed_step(seconds)

    def observe(self, sequence: Running, row: int, start: int, states: Tensor | None) -> None:
        """All that is read of the target [T, LH] at `row`'s committed positions from `start` on."""
        drafter = self.guarded[sequence.drafter]
        if drafter.feature_layers and states is not None:
            drafter.observe(row, start, self._read.part(drafter.feature_layers, states))

    def unread(self, sequence: Running, row: int) -> int:
        """Committed tokens that `row`'s draft has yet to read."""
        return self.guarded[sequence.drafter].unread(row, len(sequence.tokens))

    def propose(self, running: Sequence[Running], lens: Sequence[int]) -> Drafted:
        """Draft `lens` tokens of each row, or fewer."""
        asks: dict[str, list[Ask]] = {}
        for row, (sequence, length) in enumerate(zip(running, lens, strict=True)):
            if length > 0:
                ask = Ask(
                    row,
                    list(sequence.tokens),  # a copy: whatever is done to it hurts nobody
                    length,
                    sequence.request.sampling,
                    sequence.key.seed,
                    sequence.key.choice,
                    sequence.past.copied(),
                )
                asks.setdefault(sequence.drafter, []).append(ask)
        seconds: dict[str, float] = {}
        count = len(running)
        found = Drafted([[] for _ in running], [None] * count, [False] * count, seconds)
        for name, wanted in asks.items():
            began = self._clock()
            proposal = self.guarded[name].propose(wanted)
            seconds[name] = self._clock() - began
            laws = proposal.probs or [None] * len(wanted)
            for place, (ask, ids, law) in enumerate(zip(wanted, proposal.ids, laws, strict=True)):
                found.ids[ask.row], found.laws[ask.row] = ids, law
                found.asked[ask.row] = place not in proposal.unasked
        return found

    def move(self, sequence: Running, source: int, row: int) -> None:
        self.guarded[sequence.drafter].move(source, row)

    def forget(self, sequence: Running, row: int) -> None:
        self.guarded[sequence.drafter].forget(row)
