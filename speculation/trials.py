"""Rounds that are run to know what they show: what is not tried is not known.

Lessons at first, strays and plain rounds while drafting pays, probes while it does not; each within
a bound on what it may cost. Knows steps, lengths and seconds; `pace` gives each its turn.
"""

from __future__ import annotations

from collections.abc import Sequence

from speculation.seats import RequestPace, Seat

# The first rounds of a drafter: a plain one between, since every ratio has it below the line.
LESSONS = (0, 4, 0, 2, 4, 0, 1, 6, 0, 3, 4, 0, 2, 8, 0, 4, 1, 0, 3, 5, 0, 2, 4, 0)
LESSON_ROUNDS = 64  # drafted rounds of single rows after which the lessons end in any case
PROBE_STEPS, PROBE_EVERY = 5, 500  # so at most 10 steps of any 1,000 are probes
PROBE_SHARE = 0.01  # of all seconds, at most, spent on what probes cost beyond plain rounds
REFERENCE_LOSS = 0.005  # of the speed, given up to keep plain rounds measured while drafting
REFERENCE_EVERY = (8, 200)  # steps, at least and at most, between plain ones
ENOUGH = 8  # samples of a bucket's plain forward before it is trusted
SURPRISE = 0.15  # log-seconds: a plain round so far from what was expected is soon repeated
STRAY_EVERY = 24  # drafting steps between two at K + 1 or K - 1


class Lessons:
    """The lengths of a drafter's first rounds, whatever they yield."""

    def __init__(self) -> None:
        self._given, self._rounds = 0, 0

    @property
    def over(self) -> bool:
        return self._given >= len(LESSONS) or self._rounds >= LESSON_ROUNDS

    def next(self) -> int:
        length = LESSONS[self._given % len(LESSONS)]
        self._given += 1
        return length

    def count(self, rounds: int) -> None:
        """So many rows' rounds drafted."""
        self._rounds += rounds


class Strays:
    """Now and then plain, or one token longer or shorter, while drafting pays."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._steps = 0
        self._since_reference, self._every = 0, REFERENCE_EVERY[0]
        self.reference = False  # the round being run is a plain one, to know what plain costs

    def length(self, best: int, speed: float, plain_samples: int) -> int:
        """K of a round for which `best` was found, at S = `speed`."""
        self._since_reference += 1
        every = max((speed - 1) / speed / REFERENCE_LOSS, REFERENCE_EVERY[0])
        every = min(every, self._every)
        if plain_samples < ENOUGH:
            every = min(every, REFERENCE_EVERY[0] / 2)
        if self._since_reference >= every:
            self._since_reference = 0
            self.reference = True
            return 0
        self._steps += 1
        turn, stray = divmod(self._steps, STRAY_EVERY)
        if stray:
            return best
        return min(max(best + (1 if turn % 2 else -1), 1), self._most)

    def saw(self, surprise: float) -> None:
        """How far, as a logarithm, the round's seconds were from what was expected."""
        if self.reference:
            # Either the machine stalled, or drafting rounds and plain ones no longer slow down
            # together: only more plain rounds can tell.
            self._every = REFERENCE_EVERY[0] if abs(surprise) > SURPRISE else REFERENCE_EVERY[1]


class Probes:
    """Short runs of one row that keep its acceptance known while drafting does not pay.

    What they cost beyond plain rounds, reading a prompt first among it, is worked off before the
    next run.
    """

    def __init__(self) -> None:
        self.steps = 0  # that were probes, ever
        self._probing: RequestPace | None = None
        self._from = 0  # the step from which a run may begin
        self._debt = 0.0  # seconds that probes cost, less their share of those since

    def postpone(self, step: int) -> None:
        """Rows draft at `step`: acceptance is known without a probe."""
        self._from = max(self._from, step + PROBE_EVERY)
        self._probing = None

    def place(self, seats: Sequence[Seat], step: int) -> int | None:
        """Which of `seats` drafts at `step`, if any."""
        if self._probing is None:
            if step < self._from or self._debt > 0:
                return None
            able = [seat for seat in seats if seat.budget > 2 * PROBE_STEPS]
            if not able:
                return None
            self._probing = min(able, key=lambda seat: seat.behind).request
            self._from = step + PROBE_EVERY
        places = [n for n, seat in enumerate(seats) if seat.request is self._probing]
        if not places or step >= self._from - PROBE_EVERY + PROBE_STEPS:
            self._probing = None
            return None
        return places[0]

    def spend(self, seconds: float) -> None:
        """A probe drafts, which costs so much more than a plain round."""
        self.steps += 1
        self._debt += seconds

    def passed(self, seconds: float) -> None:
        """A round took so long, whatever it was."""
        self._debt = max(self._debt - PROBE_SHARE * seconds, 0.0)
