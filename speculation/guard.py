"""A drafter that cannot hurt: what it does wrong becomes plain decoding and a recorded fault.

The one place where a drafter's exceptions are caught, because a draft is a guess and no reason for
a request to fail. Knows what a proposal must look like; knows nothing of how it was made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import torch
from torch import Tensor

from speculation.breaker import Breaker, DrafterFault, FaultKind, Slowness
from speculation.proposal import Ask, Drafter, Proposal, spread

SUM_TOLERANCE = 1e-3  # a float32 softmax over 150,000 tokens sums to 1 within 1e-5
SMOOTHING = 0.1  # of the target's step, whose first one sets things up and is slow


def ignore(fault: DrafterFault) -> None:
    """For who does not want to know."""


def checked(
    proposal: Proposal, asks: Sequence[Ask], vocab_size: int
) -> tuple[FaultKind, str] | None:
    """What is wrong with a proposal for `asks`, if anything: its kind and a sentence."""
    probs = [None] * len(asks) if proposal.probs is None else proposal.probs
    if len(proposal.ids) != len(asks) or len(probs) != len(asks):
        return "width", f"{len(proposal.ids)} rows and {len(probs)} laws for {len(asks)} asks"
    if not all(0 <= place < len(asks) for place in proposal.broken):
        return "width", f"a broken row outside 0 to {len(asks) - 1}"
    for ask, ids, law in zip(asks, proposal.ids, probs, strict=True):
        if not all(type(token) is int for token in ids):
            return "width", "a token id that is no whole number"
        if law is not None and not ids and len(law):
            return "width", "a law for no tokens"
        if len(ids) > ask.length:
            return "width", f"{len(ids)} tokens where {ask.length} were asked for"
        if ids and not (min(ids) >= 0 and max(ids) < vocab_size):
            return "width", f"a token id outside 0 to {vocab_size - 1}"
        if law is not None and ids:
            wrong = _checked_law(law, ids, vocab_size)
            if wrong is not None:
                return wrong
    return None


def _checked_law(law: Tensor, ids: list[int], vocab_size: int) -> tuple[FaultKind, str] | None:
    if tuple(law.shape) != (len(ids), vocab_size):
        return "width", f"a law of {tuple(law.shape)}: wanted {(len(ids), vocab_size)}"
    chosen = law.gather(1, torch.tensor(ids, device=law.device)[:, None])[:, 0]
    facts = torch.stack([law.sum(dim=1), law.amin(dim=1), chosen])
    totals, least, drawn = facts.tolist()  # one wait for the device
    if not all(abs(total) < float("inf") for total in totals):
        return "nan", "a law that is not finite"
    if max(abs(total - 1) for total in totals) > SUM_TOLERANCE or min(least) < 0:
        return "law", f"a law that sums to {min(totals)} to {max(totals)}, at least {min(least)}"
    if min(drawn) <= 0:
        return "law", "a token that its own law cannot give"
    return None


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
            wrong = checked(proposal, wanted, self._vocab_size)
        except Exception as error:
            self._failed(error, rows)
            return nothing
        if wrong is not None:
            self._fault(*wrong, rows)
            return nothing
        seconds, step = self._clock() - began, self._step_seconds
        if proposal.broken:
            broken = [rows[place] for place in proposal.broken]
            self._fault("nan", f"{len(broken)} of {len(rows)} rows were not finite", broken)
        elif step is not None and self._slowness.too_slow(seconds, step):
            self._fault("slow", f"{seconds:.3f} s beside a target step of {step:.3f} s", [])
        else:
            self.breaker.success()
        asked = set(places)
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
        # An exception's own words may hold what was being decoded: its type and place do not.
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = "" if trace is None else f" at {trace.tb_frame.f_code.co_qualname}"
        short = isinstance(error, MemoryError | torch.OutOfMemoryError)
        short = short or "allocate memory" in str(error)  # torch's for the CPU is a RuntimeError
        self._fault("memory" if short else "exception", f"{type(error).__name__}{place}", rows)

    def _fault(self, kind: FaultKind, message: str, rows: Sequence[int]) -> None:
        self._on_fault(self.breaker.record(kind, message))
        for row in rows:
            self._plain.add(row)
            self.breaker.release(row)
            with suppress(Exception):  # it is the fault that was recorded, once more
                self.drafter.forget(row)
