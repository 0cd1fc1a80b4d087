"""A block of tokens becomes part of its sequence: cut at the request's end, counted, told.

Knows sequences and the logits that tokens were drawn from; nothing of how they were drafted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from speculation.sequence import Event, Running, TokenLogprobs

# Told of every committed position: request id, the target's states there [T, 3H] (None unless a
# drafter reads them), and the logits [T', V] that the emitted tokens were drawn from.
Observer = Callable[[str, Tensor | None, Tensor], None]


def commit(
    sequence: Running,
    block: Sequence[int],
    logits: Tensor,  # [len(block), V], what each token of the block was drawn from
    *,
    drafted: int,
    accepted: int,
    clock: Callable[[], float],
) -> Event:
    """Commit what a round gave."""
    kept, outcome = sequence.commit(block)
    sequence.count_round(drafted, accepted, len(kept), ended=outcome is not None)
    return _told(sequence, kept, logits, outcome, clock)


def commit_first(
    sequence: Running,
    token: int,
    logits: Tensor,  # [1, V]
    *,
    clock: Callable[[], float],
) -> Event:
    """Commit what reading the prompt gave; its forwards are counted where they are run."""
    kept, outcome = sequence.commit([token])
    return _told(sequence, kept, logits, outcome, clock)


def _told(
    sequence: Running,
    kept: Sequence[int],
    logits: Tensor,
    outcome: str | None,
    clock: Callable[[], float],
) -> Event:
    asked = sequence.request.logprobs
    found = token_logprobs(logits[: len(kept)], kept, asked) if asked else ()
    if outcome is None:
        return Event(sequence.request.id, tuple(kept), found)
    return sequence.last_event(outcome, clock(), kept, found)


def token_logprobs(logits: Tensor, ids: Sequence[int], top: int) -> tuple[TokenLogprobs, ...]:
    """Log-probabilities of `ids` and of the `top` likeliest tokens under each row of `logits`."""
    logprobs = logits.float().log_softmax(dim=-1)
    values, places = logprobs.topk(min(top, logprobs.shape[-1]), dim=-1)
    return tuple(
        TokenLogprobs(float(row[token]), tuple(zip(place.tolist(), value.tolist(), strict=True)))
        for row, token, value, place in zip(logprobs, ids, values, places, strict=True)
    )
