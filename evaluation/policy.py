"""What the gate demands, as data. Standard library only, so that configuration can read it.

Knows limits and their defaults. Knows nothing of reports or of how a limit is judged (gate.py).
docs/gate.md says of each rule why it is there.
"""

from __future__ import annotations

from dataclasses import dataclass

TIMED_SHARE = 4  # of so many prompts one is timed, since one at a time is slow
WIDEST = 0.5  # of shares: a wider margin would forgive a draft, or a server, that is half dead
WIDEST_GAP = 5.0  # nats: a token that plain decoding holds for e^5 = 148 times likelier is an error
WIDEST_DRAWN = 0.2  # of ROUGE-L of drawn texts: what hardly draws at all would be within more
LEAST_SPEED = 0.01  # of ratios that have to be above a limit: further off, a limit is none
MOST_RATIO = 100.0  # of those that have to be below one
LARGEST_SLICE = 1_000  # prompts; where hardly a slice is ever so large none would be judged
TIMED_AT_LEAST = 16  # 8 blocks of two: of fewer nobody can tell a machine that slows down


class PolicyError(ValueError):
    """A policy with a limit that cannot be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Limits of a promotion. Ratios are 0 to 1, never percent."""

    # How much is measured.
    prompts: int = 256  # per arm; a ROUGE-L margin of 0.01 needs 215 at a spread of 0.05
    minimum_prompts: int = 20  # of 19 what befalls one in seven may be in none: (6/7)^19 > 0.05
    alpha: float = 0.05  # chance of a wrong PASS, and of a wrong FAIL, of each rule

    # Whose training is not on record may have learned from the prompts that judge it.
    training_on_record: bool = False  # demanded? A draft from elsewhere has none, and may be good

    # Acceptance (alpha-hat, at one fixed draft length).
    acceptance_margin: float = 0.02  # how much worse than the incumbent is still the same
    acceptance_floor: float = 0.30  # at 0.3 a round of 4 yields 1.4 tokens: hardly pays for a draft
    forwards_over_ngram: float = 1.0  # target forwards over those of the free n-gram draft

    # Speed, whole requests under the serving policy, over plain decoding's.
    must_gain: tuple[int, ...] = (1,)  # requests at once where it has to be faster than plain
    speed_over_plain: float = 1.0  # tokens a second over plain's, there: below it a draft costs
    speed_elsewhere: float = 0.97  # at other concurrencies; what learning K and probing may cost
    first_token_over_plain: float = 1.25  # median time; a quarter of 100 ms is noticed by nobody
    first_token_seconds: float = 0.025  # later than plain's is allowed anyway: that quarter
    p95_over_plain: float = 1.20  # latency; judged from 59 requests an arm on, fewer bound no p95
    p99_over_plain: float = 1.20  # the same; judged above 1,000 requests an arm, or 10 decide it

    # Parity: speculation must not change what the target says, up to the numerics of the dtype.
    parity_gap: float = 0.5  # nats; bf16 rounding overturned gaps of 0.25 at most in 1,700 tokens
    rouge_l_margin: float = 0.01  # how far the text may be from plain decoding's, beyond its own
    drawn_margin: float = 0.05  # the same of drawn texts, either way; 256 prompts tell it

    # Slices: by task, language, context length, adapter and temperature.
    slice_margin: float = 0.10  # how much worse than the incumbent, or the floor, a slice may be
    # Of few prompts nobody may meet the one in seven that is dead: at the margin by such, 19.5 in
    # 200 passed of 20 prompts, 15 of 30, and 18 are allowed.
    slice_minimum: int = 30  # prompts; smaller slices are pooled as `other`

    # What a PASS forgives. Latency rules guard comfort; of every other rule nothing is forgiven.
    failure_limit: int = 0  # latency rules that may fail; 0 as argo-rollouts' failureLimit
    inconclusive_limit: int = 0  # latency rules that may stay open; 0 as its inconclusiveLimit
    error_limit: float = 0.01  # failed over answered requests of an arm; more is no measurement

    def __post_init__(self) -> None:
        gaining, above = self.must_gain, f"above 0, at most {MOST_RATIO:g}"
        speeds = f"{LEAST_SPEED} to {MOST_RATIO:g}"
        for name, wanted, right in (
            ("prompts", "at least 1", self.prompts >= 1),
            ("minimum_prompts", "at least 2", self.minimum_prompts >= 2),
            ("alpha", "above 0, below 0.5", 0 < self.alpha < 0.5),
            ("acceptance_margin", f"0 to {WIDEST}", 0 <= self.acceptance_margin <= WIDEST),
            ("acceptance_floor", "0 to 1, which none is above", 0 <= self.acceptance_floor < 1),
            ("forwards_over_ngram", above, 0 < self.forwards_over_ngram <= MOST_RATIO),
            (
                "must_gain",
                "numbers of requests at once, 1 or more, each once",
                all(at_once >= 1 for at_once in gaining) and len(set(gaining)) == len(gaining),
            ),
            ("speed_over_plain", speeds, LEAST_SPEED <= self.speed_over_plain <= MOST_RATIO),
            ("speed_elsewhere", speeds, LEAST_SPEED <= self.speed_elsewhere <= MOST_RATIO),
            ("first_token_over_plain", above, 0 < self.first_token_over_plain <= MOST_RATIO),
            ("first_token_seconds", "0 to 10", 0 <= self.first_token_seconds <= 10),
            ("p95_over_plain", above, 0 < self.p95_over_plain <= MOST_RATIO),
            ("p99_over_plain", above, 0 < self.p99_over_plain <= MOST_RATIO),
            ("parity_gap", f"0 to {WIDEST_GAP} nats", 0 <= self.parity_gap <= WIDEST_GAP),
            ("rouge_l_margin", f"0 to {WIDEST}", 0 <= self.rouge_l_margin <= WIDEST),
            ("drawn_margin", f"0 to {WIDEST_DRAWN}", 0 <= self.drawn_margin <= WIDEST_DRAWN),
            ("slice_margin", f"0 to {WIDEST}", 0 <= self.slice_margin <= WIDEST),
            ("slice_minimum", f"2 to {LARGEST_SLICE}", 2 <= self.slice_minimum <= LARGEST_SLICE),
            ("failure_limit", "0 or more", self.failure_limit >= 0),
            ("inconclusive_limit", "0 or more", self.inconclusive_limit >= 0),
            ("error_limit", f"0 to {WIDEST}", 0 <= self.error_limit <= WIDEST),
        ):
            if not right:
                raise PolicyError(f"policy: {name} = {getattr(self, name)!r}, wanted {wanted}")

    @property
    def speed_prompts(self) -> int:
        """Prompts of the speed runs, out of all."""
        return min(self.prompts, max(TIMED_AT_LEAST, self.prompts // TIMED_SHARE))


def prompts_to_time(speed_prompts: int) -> int:
    """Prompts in all, of which so many are timed: the way back."""
    return speed_prompts if speed_prompts <= TIMED_AT_LEAST else speed_prompts * TIMED_SHARE
