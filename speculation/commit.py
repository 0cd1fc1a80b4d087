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
    failed: bool = False,  # the target has no number behind the block
    clock: Callable[[], float],
) -> Event:
    """Commit what a round gave. A round that fails ends its request as a stop does: behind the
    tokens that it kept, and what it had drafted beyond was never drafted."""
    kept, outcome = sequence.commit(block)
    if failed and outcome is None:
        outcome = "error"
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
    likeliest = [_likeliest(row, min(top, len(row))) for row in logits]
    return tuple(
        TokenLogprobs(
            float(row[token]), tuple(zip(places.tolist(), row[places].tolist(), strict=True))
        )
        for row, token, places in zip(logprobs, ids, likeliest, strict=True)
    )


def _likeliest(logits: Tensor, top: int) -> Tensor:
    """The ids [top] of the largest of `logits` [V], the lowest ids among equals: the first is the
    greedy token. torch's `topk` gives equals in no order, and any of those at its edge."""
    edge = logits.topk(top).values[-1]
    ids = (logits >= edge).nonzero()[:, 0]
    order = logits[ids].sort(descending=True, stable=True).indices
    return ids[order[:top]]
