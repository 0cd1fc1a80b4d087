"""One request on its way through the engine: what was asked, what was emitted, where it ends.

Token ids only. `Request` and `Event` are the engine's two sides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from speculation.history import Past
from speculation.records import Counts
from speculation.sampling import Sampling
from speculation.seats import RequestPace
from speculation.streams import Key


@dataclass(frozen=True, slots=True)
class Request:
    """One sequence to decode."""

    id: str
    prompt_ids: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = Sampling()
    stop_ids: frozenset[int] = frozenset()  # any of these ends the request, and is emitted
    drafter: str | None = None  # name of an engine's drafter; None is its default
    draft_len: int | None = None  # K; None is the engine's
    logprobs: int = 0  # log-probabilities of this many likeliest tokens with each emitted one
    # Called with all emitted ids after each block: how many of them there are when a stop string
    # is complete, or None. What a stop string is, the caller knows.
    ends: Callable[[Sequence[int]], int | None] | None = None
    choice: int = 0  # which of several answers to one prompt: each draws for itself
    adapter: str | None = None  # one of the target's LoRA adapters; None is the target as it is
    scope: str = ""  # prompts of one scope share what they begin with; of two they never do


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural log-probabilities under the target's own distribution (temperature 1)."""

    logprob: float  # of the emitted token
    top: tuple[tuple[int, float], ...]  # the likeliest tokens, likeliest first


@dataclass(frozen=True, slots=True)
class Event:
    """What one step did for one request."""

    id: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()
    outcome: str | None = None  # "stop", "length", "cancelled", "error"; None while it runs
    counts: Counts | None = None  # with the outcome, as is what follows
    cached: int = 0  # tokens of the prompt that came from another's
    queue_seconds: float = 0.0
    prefill_seconds: float = 0.0  # from admission to the first token
    decode_seconds: float = 0.0  # from the first token to the last


@dataclass(slots=True, eq=False)
class Running:
    """A request with its state. `tokens` are the prompt and everything emitted."""

    request: Request
    drafter: str
    draft_len: int
    submitted: float
    key: Key
    past: Past
    pace: RequestPace | None = None  # where K is adapted
    tokens: list[int] = field(default_factory=list)
    prefilled: int = 0
    cached: int = 0
    states: list[Tensor] = field(default_factory=list)  # [T, 3H], of the prompt, while it is read
    admitted: float = 0.0
    first_token: float = 0.0
    rounds: int = 0
    plain_forwards: int = 0
    drafted: int = 0
    judged: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)

    @property
    def emitted(self) -> list[int]:
        return self.tokens[len(self.request.prompt_ids) :]

    @property
    def budget(self) -> int:
        """Tokens that may still be emitted."""
        return self.request.max_tokens - (len(self.tokens) - len(self.request.prompt_ids))

    def commit(self, block: Sequence[int]) -> tuple[list[int], str | None]:
        """Append `block` up to the request's end; returns what was kept and the outcome, if any.

        The first end in token order wins; at the same token a stop beats the budget.
        """
        kept, outcome = list(block), None
        for place, token in enumerate(block):
            if token in self.request.stop_ids:
                kept, outcome = list(block[: place + 1]), "stop"
                break
            if place + 1 == self.budget:
                kept, outcome = list(block[: place + 1]), "length"
                break
        if self.request.ends is not None:
            emitted = self.emitted
            count = self.request.ends([*emitted, *kept])
            if count is not None:
                kept, outcome = kept[: count - len(emitted)], "stop"
        self.tokens.extend(kept)
        self.past.extend(kept)
        return kept, outcome

    def count_round(self, drafted: int, accepted: int, kept: int, *, ended: bool) -> None:
        """Count a round of `kept` tokens; what lies behind the request's end was never drafted."""
        if ended:
            drafted = min(drafted, kept)
        if drafted == 0:
            self.plain_forwards += 1
            return
        judged = min(accepted + 1, drafted)
        accepted = min(accepted, kept)
        self.rounds += 1
        self.drafted += drafted
        for counter, reached in ((self.judged, judged), (self.accepted, accepted)):
            # both as long as the longest that was judged: a K that adapts goes beyond `draft_len`
            counter.extend([0] * (max(self.draft_len, judged) - len(counter)))
            for position in range(reached):
                counter[position] += 1

    def counts(self) -> Counts:
        return Counts(
            rounds=self.rounds,
            plain_forwards=self.plain_forwards,
            drafted=self.drafted,
            emitted=len(self.tokens) - len(self.request.prompt_ids),
            judged_per_position=tuple(self.judged),
            accepted_per_position=tuple(self.accepted),
        )

    def last_event(
        self,
        outcome: str,
        now: float,  # by the engine's clock
        kept: Sequence[int] = (),
        logprobs: tuple[TokenLogprobs, ...] = (),
    ) -> Event:
        """What is told when the request ends, with the last tokens it keeps."""
        return Event(
            self.request.id,
            tuple(kept),
            logprobs,
            outcome,
            self.counts(),
            cached=self.cached,
            queue_seconds=self.admitted - self.submitted,
            prefill_seconds=max(self.first_token - self.admitted, 0.0),
            decode_seconds=now - self.first_token if self.first_token else 0.0,
        )
