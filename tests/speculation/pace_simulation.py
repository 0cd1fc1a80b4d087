"""A made-up server to try `Pace` on: costs and acceptance that are known, timings that are not.

What `Pace` sees is noisy: every timing has an error, some rounds stall, the machine's speed drifts.
What is scored are the true seconds, so that two policies differ by what they decided only.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from speculation.pace import Pace
from speculation.seats import Outcome, RequestPace, Seat, State, Timing

T = TypeVar("T")

NOISE, STALL_SHARE, STALL = 0.08, 0.02, 20.0
DRIFT, DRIFT_STEPS = 0.25, 700  # the machine's speed swings by so much, as a logarithm


@dataclass(frozen=True)
class Machine:
    """True costs, in plain target forwards of one row."""

    draft: float = 0.1  # one drafted token, one row
    knee: float = 48.0  # tokens of a forward at which computing begins to outweigh reading weights
    overhead: float = 0.05
    reading: float = 0.002  # a prompt token, by the draft
    looking: float = 0.0  # for a draft of one row, found or not

    def target(self, batch: int, width: int) -> float:
        return float((1.0 + (batch * width / self.knee) ** 2) ** 0.5)

    def drafting(self, rows: int, length: int) -> float:
        return length * self.draft * float((1.0 + (rows / self.knee) ** 2) ** 0.5)

    def round(self, batch: int, rows: int, length: int) -> float:
        return self.target(batch, length + 1) + self.drafting(rows, length) + self.overhead


@dataclass(frozen=True)
class Traffic:
    """Requests whose first hazard is beta-distributed, with the correlation that real ones have."""

    alpha: float
    decline: float = 0.95  # odds of each position over the one before
    correlation: float = 0.10
    tokens: float = 60.0  # mean of an answer
    prompt: int = 200
    proposes: float = 1.0  # how often a row that is asked for a draft has one

    def hazards(self, rng: random.Random) -> list[float]:
        if self.alpha in (0.0, 1.0):
            return [self.alpha] * 16
        weight = (1 - self.correlation) / self.correlation
        first = rng.betavariate(self.alpha * weight, (1 - self.alpha) * weight)
        first = min(max(first, 1e-6), 1 - 1e-6)
        odds = [first / (1 - first) * self.decline**n for n in range(16)]
        return [each / (1 + each) for each in odds]


@dataclass
class _Row:
    hazards: list[float]
    budget: int
    unread: int
    proposes: float
    emitted: int = 0
    pace: RequestPace = field(default_factory=RequestPace)


@dataclass
class Told:
    """What a run did: true seconds, those that plain decoding would have taken, and decisions."""

    seconds: float = 0.0
    plain_seconds: float = 0.0
    steps: int = 0
    requests: int = 0
    drafted_steps: list[int] = field(default_factory=list)  # K of each step's longest draft
    states: list[State] = field(default_factory=list)
    probes: list[int] = field(default_factory=list)  # the steps that were probes
    begun: list[int] = field(default_factory=list)  # the step at which the n-th request began
    ended: list[int] = field(default_factory=list)  # steps at which one ended, in order

    @property
    def speedup(self) -> float:
        return self.plain_seconds / self.seconds


def always(value: T) -> Callable[[int], T]:
    return lambda number: value


def serve(
    policy: Pace | int,
    traffic: Callable[[int], Traffic],
    *,
    machine: Machine,
    batch: Callable[[int], int],
    requests: int,
    seed: int = 0,
    skip_rounds: int = 0,
    stalls: bool = True,
) -> Told:
    """Serve `requests`, `batch(step)` at a time, at a fixed K or at what a `Pace` says.

    `traffic(n)` is what the n-th request is drawn from. The first `skip_rounds` rounds that
    drafted, of single rows, are not scored.
    """
    lengths, noise = random.Random(f"lengths {seed}"), random.Random(f"noise {seed}")
    luck = random.Random(f"luck {seed}")
    told, rows, skipped, step = Told(), list[_Row](), 0, 0
    while told.requests < requests:
        while len(rows) < batch(step):
            kind = traffic(len(told.begun))
            tokens = max(8, int(lengths.lognormvariate(math.log(kind.tokens) - 0.18, 0.6)))
            rows.append(_Row(kind.hazards(lengths), tokens, kind.prompt, kind.proposes))
            told.begun.append(step)
        count = min(len(rows), batch(step))
        now = rows[:count]
        seats = [
            Seat(row.pace, row.budget - row.emitted, row.unread if row.unread > 17 else 0)
            for row in now
        ]
        probed = policy.probe_steps if isinstance(policy, Pace) else 0
        if isinstance(policy, Pace):
            lens = policy.draft_lens(seats, batch=count, context=300)
        else:
            lens = [max(min(policy, seat.budget - 1), 0) for seat in seats]
        asked = sum(length > 0 for length in lens)
        for place, row in enumerate(now):
            if row.proposes < 1.0 and luck.random() >= row.proposes:
                lens[place] = 0
        longest, drafting = max(lens), sum(length > 0 for length in lens)
        caught_up = sum(seat.behind for seat, length in zip(seats, lens, strict=True) if length)
        reading = caught_up * machine.reading
        drafted_seconds = machine.drafting(drafting, longest) + reading + asked * machine.looking
        target = machine.target(count, longest + 1)
        outcomes, emitted = [], 0
        for row, length in zip(now, lens, strict=True):
            accepted = 0
            while accepted < length and luck.random() < row.hazards[accepted]:
                accepted += 1
            row.emitted += accepted + 1
            emitted += accepted + 1
            row.unread = accepted + 1 if length else row.unread + 1
            outcomes.append(Outcome(row.pace, min(accepted + 1, length), accepted))
        if isinstance(policy, Pace):
            slow = math.exp(DRIFT * math.sin(2 * math.pi * step / DRIFT_STEPS))

            def timed(seconds: float, slow: float = slow) -> float:
                stall = STALL if stalls and noise.random() < STALL_SHARE else 1.0
                return seconds * slow * noise.lognormvariate(0.0, NOISE) * stall * 0.02

            policy.observe(
                Timing(
                    batch=count,
                    context=300,
                    width=longest + 1,
                    target_seconds=timed(target),
                    draft_seconds=timed(drafted_seconds),
                    overhead_seconds=timed(machine.overhead),
                    drafted=longest,
                    drafting=drafting,
                    in_vain=asked - drafting,
                    caught_up=caught_up,
                ),
                outcomes,
            )
            if policy.probe_steps > probed:
                told.probes.append(step)
            told.states.append(policy.state)
        told.drafted_steps.append(longest)
        if skipped >= skip_rounds:
            told.seconds += target + drafted_seconds + machine.overhead
            told.plain_seconds += emitted * machine.round(count, 0, 0) / count
            told.steps += 1
        skipped += drafting
        step += 1
        # Plain policies never reach their share of drafted rounds: they count as learnt.
        if skipped < skip_rounds and step >= 8 * skip_rounds:
            skipped = skip_rounds
        for row in [row for row in now if row.emitted >= row.budget]:
            rows.remove(row)
            told.ended.append(step)
            told.requests += skipped >= skip_rounds
            if isinstance(policy, Pace):
                policy.finish(row.pace, row.emitted)
    return told


def best_fixed(
    traffic: Callable[[int], Traffic],
    *,
    machine: Machine,
    batch: Callable[[int], int],
    requests: int,
    seed: int = 0,
    lens: Sequence[int] = range(17),
) -> tuple[int, float]:
    """The best K in hindsight, one for all rounds, and its speed over plain decoding."""
    found = {
        length: serve(
            length, traffic, machine=machine, batch=batch, requests=requests, seed=seed
        ).speedup
        for length in lens
    }
    best = max(found, key=lambda length: found[length])
    return best, found[best]


SETTINGS = {
    "one row, cheap draft": (Machine(0.08), 1),
    "one row, dear draft": (Machine(0.45), 1),
    "eight rows, wide machine": (Machine(0.06, knee=200.0, reading=0.0005), 8),
    "eight rows, narrow machine": (Machine(0.10, knee=24.0), 8),
    "sixteen rows, narrow machine": (Machine(0.10, knee=16.0), 16),
    "one row, compute-bound": (Machine(0.15, knee=1.5), 1),
}
ALPHAS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.95)


def main() -> None:
    print(f"{'setting':30} alpha  pace  best (K)  probes/1000  switches  state")
    for name, (machine, rows) in SETTINGS.items():
        for alpha in ALPHAS:
            pace, traffic, batch = Pace(), always(Traffic(alpha)), always(rows)
            told = serve(pace, traffic, machine=machine, batch=batch, requests=300, skip_rounds=100)
            best, speed = best_fixed(traffic, machine=machine, batch=batch, requests=300)
            print(
                f"{name:30} {alpha:4.2f} {told.speedup:6.3f} {speed:6.3f} ({best:2d})"
                f" {1000 * len(told.probes) / len(told.states):8.1f} {pace.switches:9d}"
                f"  {pace.state}"
            )


if __name__ == "__main__":
    main()
