"""A drafter that cannot hurt: what it does wrong becomes plain decoding and a recorded fault.

A draft is a guess and no reason for a request to fail, so its exceptions end here. Knows what a
proposal must look like; knows nothing of how it was made.

A fault takes back as little as it can: a row keeps the tokens before its first wrong step, with
their laws. Whether a step goes wrong may depend on the tokens before it, and to drop those because
of it would choose among the rounds that are judged. A proposal that has no rows to speak of, or
that never came because its drafter raised, is dropped whole; that bends nothing as long as it does
not depend on what was drawn, which only the drafter can see to (`draws` does).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from speculation.breaker import Breaker, DrafterFault, FaultKind, Slowness
from speculation.faults import named
from speculation.proposal import Ask, Drafter, Proposal, spread

SUM_TOLERANCE = 1e-3  # a float32 softmax over 150,000 tokens sums to 1 within 1e-5
SMOOTHING = 0.1  # of the target's step, whose first one sets things up and is slow


def ignore(fault: DrafterFault) -> None:
    """For who does not want to know."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """What is wrong with a proposal, or with one of its rows."""

    kind: FaultKind
    message: str
    row: int | None = None  # which place of the asks; None: the proposal as a whole
    sound: int = 0  # tokens of the row before its first wrong step


def checked(proposal: Proposal, asks: Sequence[Ask], vocab_size: int) -> list[Wrong]:
    """All that is wrong with a proposal for `asks`; of the whole proposal, that alone."""
    probs = [None] * len(asks) if proposal.probs is None else proposal.probs
    if len(proposal.ids) != len(asks) or len(probs) != len(asks):
        what = f"{len(proposal.ids)} rows and {len(probs)} laws for {len(asks)} asks"
        return [Wrong("width", what)]
    if not all(0 <= place < len(asks) for place in proposal.broken):
        return [Wrong("width", f"a broken row outside 0 to {len(asks) - 1}")]
    found = []
    for row, (ask, ids, law) in enumerate(zip(asks, proposal.ids, probs, strict=True)):
        wrong = _checked_row(row, ask, ids, law, vocab_size)
        if wrong is not None and wrong.row is None:
            return [wrong]
        if wrong is not None:
            found.append(wrong)
    return found


def _checked_row(
    row: int, ask: Ask, ids: list[int], law: Tensor | None, vocab_size: int
) -> Wrong | None:
    if not all(type(token) is int for token in ids):
        return Wrong("width", "a token id that is no whole number")
    if law is not None and not ids and len(law):
        return Wrong("width", "a law for no tokens")
    if len(ids) > ask.length:
        return Wrong("width", f"{len(ids)} tokens where {ask.length} were asked for")
    if law is not None and ids and tuple(law.shape) != (len(ids), vocab_size):
        return Wrong("width", f"a law of {tuple(law.shape)}: wanted {(len(ids), vocab_size)}")
    known = next((n for n, token in enumerate(ids) if not 0 <= token < vocab_size), len(ids))
    if law is not None and known:
        wrong = _checked_law(row, law[:known], ids[:known])
        if wrong is not None:
            return wrong
    if known < len(ids):
        return Wrong("width", f"a token id outside 0 to {vocab_size - 1}", row, known)
    return None


def _checked_law(row: int, law: Tensor, ids: list[int]) -> Wrong | None:
    chosen = law.gather(1, torch.tensor(ids, device=law.device)[:, None])[:, 0]
    facts = torch.stack([law.sum(dim=1), law.amin(dim=1), chosen], dim=1)
    for step, (total, least, drawn) in enumerate(facts.tolist()):  # one wait for the device
        if not abs(total) < float("inf"):
            return Wrong("nan", "a law that is not finite", row, step)
        if abs(total - 1) > SUM_TOLERANCE or least < 0:
            return Wrong("law", f"a law that sums to {total}, at least {least}", row, step)
        if drawn <= 0:
            return Wrong("law", "a token that its own law cannot give", row, step)
    return None


def shortened(proposal: Proposal, wrongs: Sequence[Wrong]) -> Proposal:
    """`proposal` whose rows end before what is wrong with them."""
    ids = list(proposal.ids)
    probs = None if proposal.probs is None else list(proposal.probs)
    for wrong in wrongs:
        assert wrong.row is not None
        ids[wrong.row] = ids[wrong.row][: wrong.sound]
        law = None if probs is None else probs[wrong.row]
        if probs is not None and law is not None:
            probs[wrong.row] = law[: wrong.sound] if wrong.sound else None
    return replace(proposal, ids=ids, probs=probs)


class Guarded:
    """`drafter` behind a breaker. A row that met a fault decodes plainly to its end.

    Tell it the time of the target's steps with `timed_step`, so that it knows what is slow.
    """

    def __init__(
        self,
        drafter: Drafter,
        *,
        vocab_size: int,
        clock: Callable[[], float],
        breaker: Breaker | None = None,
        slowness: Slowness | None = None,
        on_fault: Callable[[DrafterFault], None] = ignore,
    ) -> None:
        self.drafter, self.kind = drafter, drafter.kind
        self._vocab_size, self._clock = vocab_size, clock
        self.breaker = breaker or Breaker(clock)
        self._slowness, self._on_fault = slowness or Slowness(), on_fault
        self._step_seconds: float | None = None
        self._plain: set[int] = set()  # rows

    @property
    def feature_layers(self) -> tuple[int, ...]:
        return self.drafter.feature_layers

    def timed_step(self, seconds: float) -> None:
        """One forward of the target over a round took this long."""
        known = self._step_seconds
        self._step_seconds = seconds if known is None else known + SMOOTHING * (seconds - known)

    def observe(self, row: int, start: int, features: Tensor | None) -> None:
        if row in self._plain:
            return
        try:
            self.drafter.observe(row, start, features)
        except Exception as error:
            self._failed(error, [row])

    def unread(self, row: int, length: int) -> int:
        if row in self._plain:
            return 0
        try:
            return self.drafter.unread(row, length)
        except Exception as error:
            self._failed(error, [row])
            return 0

    def propose(self, asks: Sequence[Ask]) -> Proposal:
        places = [
            place
            for place, ask in enumerate(asks)
            if ask.row not in self._plain and self.breaker.allow(ask.row)
        ]
        nothing = Proposal([[] for _ in asks], None, unasked=tuple(range(len(asks))))
        if not places:
            return nothing
        wanted = [asks[place] for place in places]
        rows = [ask.row for ask in wanted]
        began = self._clock()
        try:
            proposal = self.drafter.propose(wanted)
            wrongs = checked(proposal, wanted, self._vocab_size)
        except Exception as error:
            self._failed(error, rows)
            return nothing
        if wrongs and wrongs[0].row is None:
            self._fault(wrongs[0].kind, wrongs[0].message, rows)
            return nothing
        proposal = shortened(proposal, wrongs)
        faulty = {wrong.row for wrong in wrongs if wrong.row is not None} | set(proposal.broken)
        seconds, step = self._clock() - began, self._step_seconds
        if proposal.fault is not None:
            self._fault(*proposal.fault, rows)
        elif wrongs:
            self._fault(wrongs[0].kind, wrongs[0].message, [rows[place] for place in faulty])
        elif faulty:
            broken = [rows[place] for place in proposal.broken]
            self._fault("nan", f"{len(broken)} of {len(rows)} rows were not finite", broken)
        elif step is not None and self._slowness.too_slow(seconds, step):
            self._fault("slow", f"{seconds:.3f} s beside a target step of {step:.3f} s", [])
        else:
            self.breaker.success()
        # Where a fault left no token at all, nothing is known of whether the drafter had any.
        asked = set(places) - {places[n] for n in faulty if not proposal.ids[n]}
        unasked = tuple(place for place in range(len(asks)) if place not in asked)
        return replace(spread(proposal, places, len(asks)), unasked=unasked)

    def move(self, source: int, row: int) -> None:
        self._plain.discard(row)
        self.breaker.rename(source, row)
        if source in self._plain:
            self._plain.remove(source)
            self._plain.add(row)
            return
        try:
            self.drafter.move(source, row)
        except Exception as error:
            self._failed(error, [source, row])
            self._plain.discard(source)

    def forget(self, row: int) -> None:
        self._plain.discard(row)
        self.breaker.release(row)
        try:
            self.drafter.forget(row)
        except Exception as error:
            self._failed(error, [])

    def _failed(self, error: Exception, rows: Sequence[int]) -> None:
        self._fault(*named(error), rows)

    def _fault(self, kind: FaultKind, message: str, rows: Sequence[int]) -> None:
        self._on_fault(self.breaker.record(kind, message))
        for row in rows:
            self._plain.add(row)
            self.breaker.release(row)
            with suppress(Exception):  # it is the fault that was recorded, once more
                self.drafter.forget(row)
