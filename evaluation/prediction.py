"""Predicts what an arm gains from its acceptance and its costs, to be held against what it gained.

The model is S(K) = E(K) / (K*c + v(K) + o): tokens a round yields over what a round costs, in plain
forwards; c is a drafted token, v(K) the target's forward over K + 1 tokens, o the host's overhead.

What is derived how, since an endpoint tells seconds of requests and not of kernels:

- E(K) = 1 + the sum of survivals, from the acceptance runs: other requests, at a fixed K. Where the
  serving policy drafted further than that K, the last position's hazard is taken to go on.
- c, v and o are not told apart. Their sum is, as the cost of a round: the arm's decode seconds less
  its plain forwards' share, per round, over plain decoding's seconds a forward. From half of the
  blocks of the speed runs, as are K and the share of plain forwards that the serving policy chose.
  Where it hardly drafts this cost is noise, and weighs as little in the result.
- It is compared with the decode speed-up of the other half, of which nothing went in. Blocks of
  even and of odd number are one half and the other, then the other way round, and the mean of both
  is told: the order of the arms is not the same in the two.

So the two agree only if the model holds: if a round's yield does not depend on the load it is made
under, and costs do not depend on the tokens. Where K follows the request, easy ones get more of it
and E of the average K is a little too low. End to end is Amdahl: 1 / (p + (1 - p) / S), p being the
share of prefill in plain decoding's time on the server.
Sources: Leviathan et al., Fast Inference from Transformers via Speculative Decoding, 2023, section
3.4; Amdahl, Validity of the single processor approach, 1967.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

from evaluation.report import Report, RequestFigures
from evaluation.samples import SPEED
from speculation.records import Counts, pool

PLAIN = "none"


@dataclass(frozen=True, slots=True)
class Prediction:
    """One arm at one concurrency. Costs are in plain forwards of the target."""

    draft_len: float  # tokens drafted a round in the speed runs, on average
    drafting: float  # share of forwards that verified a draft, prefill aside
    tokens_a_round: float  # E(K)
    round_cost: float  # K*c + v(K) + o
    decode_speedup: float  # predicted, over plain decoding
    measured_decode_speedup: float  # of the other half of the blocks
    prefill_share: float  # p, of plain decoding's seconds on the server
    end_to_end_speedup: float  # predicted, by Amdahl


def predict(report: Report, arm: str, concurrency: int) -> Prediction | None:
    """The prediction for `arm`, or None where there is nothing to predict it from: no draft, no
    speed runs, fewer than two blocks."""
    halves = [from_half(report, arm, concurrency, parity) for parity in (0, 1)]
    if halves[0] is None or halves[1] is None:
        return None
    both = zip(astuple(halves[0]), astuple(halves[1]), strict=True)
    return Prediction(*((one + other) / 2 for one, other in both))


def from_half(report: Report, arm: str, concurrency: int, parity: int) -> Prediction | None:
    """From the blocks whose number is even (`parity` 0) or odd (1), for those of the other."""
    ours, plain = (report.of(a, SPEED, concurrency=concurrency) for a in (arm, PLAIN))
    learned_from, yardstick = ([r for r in side if r.block % 2 == parity] for side in (ours, plain))
    held_out = ([r for r in side if r.block % 2 != parity] for side in (ours, plain))
    counts = pool([r.counts for r in learned_from])
    drafted = pool([r.counts for r in report.of(arm)])  # the acceptance runs'
    forward, measured = _seconds_a_forward(yardstick), _decode_speedup(*held_out)
    if forward is None or measured is None or not (counts.rounds and drafted.rounds):
        return None
    # a request's prefill is a plain forward, and no decoding
    plain_forwards = max(0, counts.plain_forwards - len(learned_from))
    seconds = sum(r.decode_seconds for r in learned_from)
    cost = (seconds / forward - plain_forwards) / counts.rounds
    draft_len = counts.drafted / counts.rounds
    drafting = counts.rounds / (counts.rounds + plain_forwards)
    tokens = expected_tokens(drafted, draft_len)
    taken = (1 - drafting) + drafting * cost
    if taken <= 0:
        return None
    gain = ((1 - drafting) + drafting * tokens) / taken
    share = prefill_share(plain)
    return Prediction(
        draft_len, drafting, tokens, cost, gain, measured, share, end_to_end(gain, share)
    )


def expected_tokens(counts: Counts, draft_len: float) -> float:
    """E(K): tokens a round of `draft_len` yields, by measured survivals; between two whole K in
    proportion, beyond the measured positions by the last one's hazard."""
    survivals = [kept / counts.rounds for kept in counts.accepted_per_position]
    last = next((hazard for hazard in reversed(counts.hazards) if hazard is not None), 0.0)
    total, position, survival = 1.0, 0, 1.0
    while draft_len > position:
        survival = survivals[position] if position < len(survivals) else survival * last
        total += survival * min(1.0, draft_len - position)
        position += 1
    return total


def end_to_end(decode_speedup: float, prefill_share: float) -> float:
    """The speed-up of a whole request of which `prefill_share` is not made faster (Amdahl)."""
    return 1 / (prefill_share + (1 - prefill_share) / decode_speedup)


def prefill_share(plain: Sequence[RequestFigures]) -> float:
    """Of plain decoding's seconds on the server, those before the first token; 0 to 1."""
    prefill = sum(r.prefill_seconds for r in plain)
    whole = prefill + sum(r.decode_seconds for r in plain)
    return prefill / whole if whole > 0 else 0.0


def _seconds_a_forward(plain: Sequence[RequestFigures]) -> float | None:
    forwards = sum(r.counts.plain_forwards - 1 for r in plain)
    seconds = sum(r.decode_seconds for r in plain)
    return seconds / forwards if forwards > 0 and seconds > 0 else None


def _decode_speedup(
    ours: Sequence[RequestFigures], plain: Sequence[RequestFigures]
) -> float | None:
    """Tokens after the first a second of decoding, over plain decoding's."""
    rates = []
    for side in (ours, plain):
        tokens = sum(max(0, r.completion_tokens - 1) for r in side)
        seconds = sum(r.decode_seconds for r in side)
        if not tokens or seconds <= 0:
            return None
        rates.append(tokens / seconds)
    return rates[0] / rates[1]
