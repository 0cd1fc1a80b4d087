"""Decides K: how many tokens to draft for each row of a round, 0 where drafting does not pay.

Knows hazards and costs as they were counted and timed, by position, batch and context; knows
nothing of tokens, models, clocks or randomness: the same observations give the same K. One `Pace`
a served drafter; what it learns is the server's, and outlives the requests.

The rule (docs/speculation.md): one more drafted token pays iff its survival exceeds what it adds to
the round, in rounds, times the speed already reached, that is, K = argmax S(K). A batch shares one
forward, as wide as its longest draft: the K of its rows is chosen together, by the sum of their
E(K), each with its own hazards. Alone in the batch, a request has a K of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from speculation.costs import Costs, RoundCosts
from speculation.hazards import MOST_DRAFTED, PooledHazards, expected_tokens, shifted_tokens
from speculation.proposing import Proposing
from speculation.seats import Outcome, RequestPace, Seat, State, Timing
from speculation.timings import Floats, batch_bucket, context_bucket
from speculation.trials import Lessons, Probes, Strays

TURNED = 12  # requests in a row for which drafting did not pay, before drafting is off
REJECTED = 0.15  # of S, lost to fallen hazards alone, makes it rejections that ended drafting
KEPT_ROUNDS = 60.0  # the pool's weight when costs ended it: enough for K, little beside new rounds
ON, OFF = 1.05, 1.01  # S above which drafting starts, and below which it ends
PAID_MEMORY = 2000.0  # drafting steps; longer than a collapse takes to be noticed
PATIENCE = 20  # engine steps in a row below OFF before drafting is off
LOOK_EVERY = 4  # steps that share one estimate of the costs, while the load is the same
ANSWER_TOKENS, ANSWER_MEMORY = 64.0, 20.0  # an answer's length until known; requests remembered


class Pace:
    """K for one drafter. Ask `draft_lens` before each round, tell `observe` after it."""

    def __init__(
        self,
        *,
        most: int = MOST_DRAFTED,  # K at most
        costs: Costs | None = None,
    ) -> None:
        if not 1 <= most <= MOST_DRAFTED:
            raise ValueError(f"most {most}: wanted 1 to {MOST_DRAFTED}")
        self.costs = Costs() if costs is None else costs
        self.rejected_off = 0  # times that rejections drove K to 0
        self.switches = 0  # times that drafting went on or off
        self._most = most
        self._pool = PooledHazards()
        self._paid = self._pool.hazards  # hazards with which drafting paid, of late
        self._on, self._off = True, State.OFF_BY_COST
        self._proposing = Proposing()
        self._lessons, self._strays, self._probes = Lessons(), Strays(most), Probes()
        self._below = 0
        # Shifts of the requests that ended, one after another, with drafting not paying for them:
        # each turns it off for itself after few rounds, so that the pool learns little from it.
        self._turned: deque[float] = deque(maxlen=TURNED)
        self._steps = 0
        self._answer_tokens = ANSWER_TOKENS
        self._unread_tokens = 0.0  # that a new request's prompt has, for the draft
        self._last: RoundCosts | None = None
        self._load, self._look_again = (0, 0, 0), 0

    # What monitoring and the console read.

    @property
    def state(self) -> State:
        if not self._lessons.over:
            return State.LEARNING
        if self._on:
            return State.DRAFTING
        return self._off

    @property
    def hazards(self) -> tuple[float, ...]:
        """Pooled, by position, the latest rounds counting most."""
        return tuple(self._pool.hazards.tolist())

    @property
    def proposing(self) -> float:
        """Of the rows asked of late, the share that got a draft."""
        return self._proposing.share

    @property
    def probe_steps(self) -> int:
        """Engine steps in which a row drafted to keep acceptance known."""
        return self._probes.steps

    def speedups(self, batch: int, context: int) -> tuple[float, ...] | None:
        """Predicted S(K) at this load for K = 0, 1, ...; None before anything was timed."""
        costs = self.costs.estimate(batch, context)
        if costs is None:
            return None
        return tuple(self._speeds(self._pool.hazards, costs, batch).tolist())

    # What the engine calls.

    def draft_lens(
        self, seats: Sequence[Seat], *, batch: int, context: int, width: int = 1
    ) -> list[int]:
        """K of each of `seats` in the coming round, 0 to `most`; the engine asks once a round.

        `batch` counts all rows, those too that may not draft, `context` the tokens of the longest,
        `width` the positions the forward has in any case (a row at a fixed K has K + 1).
        """
        self._strays.reference = False
        if not seats:
            return []
        self._steps += 1
        self._meet(seats)
        if not self._lessons.over:
            return self._lesson(seats)
        costs = self._estimated(batch, context, len(seats))
        if costs is None:
            return self._lesson(seats)
        pooled = self._pooled_speed(self._pool.hazards, costs, batch)
        self._switch(pooled, costs, batch)
        taking, best, speed = self._best(seats, costs, batch, width)
        for place, seat in enumerate(seats):
            seat.request.worth = place in taking
        if taking:
            if pooled > ON:  # only while there is evidence to come: plain rounds hold none
                self._paid = self._paid + (self._pool.hazards - self._paid) / PAID_MEMORY
            self._probes.postpone(self._steps)
            length = self._strays.length(best, speed, self.costs.samples(batch, context)[0])
            lens = [0] * len(seats)
            for place in taking:
                lens[place] = self._capped(length, seats[place])
            return lens
        return self._probe(seats, costs)

    def observe(self, timing: Timing, outcomes: Sequence[Outcome] = ()) -> None:
        """Fold in the round that was just run, plain ones too."""
        surprise = self.costs.observe(
            timing.batch,
            timing.context,
            timing.width,
            timing.target_seconds,
            timing.draft_seconds,
            timing.drafted,
            timing.overhead_seconds,
            drafting=timing.drafting,
            in_vain=timing.in_vain,
            caught_up=timing.caught_up,
        )
        self._strays.saw(surprise)
        self._probes.passed(timing.target_seconds + timing.draft_seconds + timing.overhead_seconds)
        self._proposing.add(timing.drafting, timing.in_vain)
        judged = [(o.request.hazards, o.judged, o.accepted) for o in outcomes if o.judged]
        self._pool.add(judged)
        self._lessons.count(len(judged))

    def finish(self, request: RequestPace, emitted: int) -> None:
        """A request has ended, having emitted so many tokens."""
        self._pool.close_piece(request.hazards)
        if self._on and request.worth is not None:
            if request.worth:
                self._turned.clear()
            else:
                self._turned.append(request.hazards.shift)
        self._answer_tokens += (emitted - self._answer_tokens) / ANSWER_MEMORY

    def _lesson(self, seats: Sequence[Seat]) -> list[int]:
        length = self._lessons.next()
        return [self._capped(length, seat) for seat in seats]

    def _capped(self, length: int, seat: Seat) -> int:
        """A round adds one token more than it accepts."""
        return max(min(length, self._most, seat.budget - 1), 0)

    def _meet(self, seats: Sequence[Seat]) -> None:
        """Remember how much the draft must read of a request that is new."""
        for seat in seats:
            if not seat.request.seen:
                seat.request.seen = True
                self._unread_tokens += (seat.behind - self._unread_tokens) / ANSWER_MEMORY

    def _estimated(self, batch: int, context: int, rows: int) -> RoundCosts | None:
        """The costs at this load; figures move slowly, so some steps share one look at them."""
        load = (batch_bucket(batch), context_bucket(context), batch_bucket(rows))
        if self._last is None or load != self._load or self._steps >= self._look_again:
            self._last = self.costs.estimate(batch, context, drafting=rows)
            self._load, self._look_again = load, self._steps + LOOK_EVERY
        return self._last

    def _pooled_speed(self, hazards: Floats, costs: RoundCosts, batch: int) -> float:
        """The best S of drafting for requests as they come, reading their prompts among the costs.

        That reading stalls the batch once a request, and is paid off over the answer.
        """
        stall = self.costs.reading_seconds(self._unread_tokens) / self._answer_tokens
        plain = float(costs.seconds[0]) / batch  # seconds a token
        found: list[float] = self._speeds(hazards, costs, batch)[1:].tolist()
        return max(1.0 / (1.0 / speed + stall / plain) for speed in found)

    def _speeds(self, hazards: Floats, costs: RoundCosts, rows: int) -> Floats:
        """S(K) [most + 1] where all of a batch's `rows` are alike: S(0) is 1."""
        tokens = np.array(expected_tokens(hazards.tolist()[: self._most]))
        seconds = costs.seconds[: len(tokens)]
        speeds: Floats = self._yielded(tokens) * seconds[0] / self._taken(seconds, rows)
        return speeds

    def _yielded(self, tokens: Floats) -> Floats:
        """Tokens [..., K + 1] of a round that is asked to draft, from those of one that does."""
        found: Floats = 1.0 + self._proposing.share * (tokens - 1.0)
        return found

    def _taken(self, seconds: Floats, rows: int) -> Floats:
        """Seconds [K + 1] of a round for whose `rows` a draft is asked, from those of one that has
        one: where no row gets one, it is a plain round after a look in vain."""
        some = self._proposing.some(rows)
        vain = float(seconds[0]) + self.costs.vain_seconds(rows)
        found: Floats = some * seconds + (1.0 - some) * vain
        found[0] = seconds[0]
        return found

    def _switch(self, speed: float, costs: RoundCosts, batch: int) -> None:
        """Drafting goes on or off by `speed`, the pooled hazards' best S at this load."""
        self._below = self._below + 1 if speed < OFF else 0
        if not self._on:
            if speed > ON:
                self._on = True
                self.switches += 1
            return
        turned = len(self._turned) == TURNED
        if self._below < PATIENCE and not turned:
            return
        once = self._pooled_speed(self._paid, costs, batch)
        rejected = once > ON and once - speed > REJECTED
        shifts, self._turned = [shift for shift in self._turned if shift], deque(maxlen=TURNED)
        if speed > ON and not rejected:
            return  # the next request may well be worth it: it would be on again at once
        self._on = False
        self.switches += 1
        if not rejected:
            self._off = State.OFF_BY_COST
            self._pool.restart(rounds=KEPT_ROUNDS)
            return
        self._off = State.OFF_BY_REJECTION
        self.rejected_off += 1
        # So little weight that a probe or two can tell that the draft is back; and believed to be
        # no better than what the requests that ended it have shown.
        self._pool.restart(shift=sum(shifts) / len(shifts) if shifts else 0.0)
        for _ in range(40):
            if self._pooled_speed(self._pool.hazards, costs, batch) < OFF:
                break
            self._pool.restart(shift=-0.25)

    def _best(
        self, seats: Sequence[Seat], costs: RoundCosts, batch: int, width: int
    ) -> tuple[list[int], int, float]:
        """The places of the seats that draft, the one K that the batch gains most from, its S."""
        lengths = self._most + 1
        widths = np.maximum(np.arange(lengths), width - 1)
        seconds = costs.target[widths] + costs.overhead[widths] + costs.draft[:lengths]
        plain_rate = batch / seconds[0]
        seconds = self._taken(seconds, len(seats))
        shifts = [seat.request.hazards.shift for seat in seats]
        tokens = shifted_tokens(self._pool.hazards, shifts)[:, :lengths]
        for place, seat in enumerate(seats):  # what lies behind the end of a request gains nothing
            last = max(seat.budget - 1, 0)
            tokens[place, last:] = tokens[place, min(last, self._most)]
        tokens = self._yielded(tokens)
        taking = list(range(len(seats)))
        # Reading a prompt first stalls the batch once: it is paid off over the request's rounds,
        # of which there are fewer the more each yields.
        reading = np.zeros(len(seats))
        for place, seat in enumerate(seats):
            if seat.behind:
                left = max(min(self._answer_tokens, seat.budget), 1.0)
                reading[place] = self.costs.reading_seconds(seat.behind) / left
        if reading.any():
            likely = int(np.argmax((tokens.sum(0) + batch - len(seats)) / seconds))
            gains = tokens[:, likely] - 1.0 - reading * tokens[:, likely] * plain_rate
            taking = [place for place in taking if not reading[place] or gains[place] > 0]
        idle = batch - len(taking)
        stalls = (reading[taking, None] * tokens[taking]).sum(0)
        speeds = (tokens[taking].sum(0) + idle) / (seconds + stalls) / plain_rate
        best = int(np.argmax(speeds[1:])) + 1
        if speeds[best] < (OFF if self._on else ON):
            return [], 0, 1.0
        return taking, best, float(speeds[best])

    def _probe(self, seats: Sequence[Seat], costs: RoundCosts) -> list[int]:
        """Plain, but for short runs of one row that keep its acceptance known.

        At the K with which drafting once paid: that is what is to be known again.
        """
        lens = [0] * len(seats)
        place = self._probes.place(seats, self._steps)
        if place is None:
            return lens
        once = self._speeds(self._paid, costs, 1)
        length = self._capped(int(np.argmax(once[1:])) + 1, seats[place])
        if length:
            more = float(costs.seconds[length] - costs.seconds[0])
            self._probes.spend(more + self.costs.reading_seconds(seats[place].behind))
        lens[place] = length
        return lens
