"""Which requests an engine can serve. Checked at the door, trusted inside. Token ids only."""

from __future__ import annotations

from dataclasses import dataclass

from speculation.cache import MOST_DRAFTED
from speculation.sequence import Request


@dataclass(frozen=True, slots=True)
class Limits:
    """What an engine has."""

    max_len: int  # tokens of a sequence, its prompt's included
    token_count: int  # ids 0 to one less name tokens
    drafters: tuple[str, ...]
    adapters: tuple[str, ...]


def check(request: Request, limits: Limits) -> None:
    """Raises ValueError for what cannot be served: got, wanted, and what to do."""
    length = len(request.prompt_ids)
    if not request.prompt_ids or request.max_tokens < 1:
        raise ValueError(
            f"{length} prompt tokens, max_tokens {request.max_tokens}: wanted 1 or more of each"
        )
    if length + request.max_tokens > limits.max_len:
        raise ValueError(
            f"{length} prompt tokens and max_tokens {request.max_tokens} exceed the context of "
            f"{limits.max_len} tokens: shorten one of them"
        )
    sampling = request.sampling
    for what, ids in (
        ("prompt", request.prompt_ids),
        ("logit_bias, allowed or banned tokens", sampling.tokens),
    ):
        for token in ids:
            if not 0 <= token < limits.token_count:
                raise ValueError(
                    f"token id {token} in {what}: wanted 0 to {limits.token_count - 1}"
                )
    if request.drafter is not None and request.drafter not in limits.drafters:
        raise ValueError(f"drafter {request.drafter!r}: wanted one of {sorted(limits.drafters)}")
    if request.draft_len is not None and not 0 <= request.draft_len <= MOST_DRAFTED:
        raise ValueError(f"draft_len {request.draft_len}: wanted 0 to {MOST_DRAFTED}")
    if request.adapter is not None and request.adapter not in limits.adapters:
        raise ValueError(f"adapter {request.adapter!r}: wanted one of {sorted(limits.adapters)}")
    if len(sampling.banned) >= limits.token_count:
        raise ValueError("every token is banned: nothing could be emitted")
    if sampling.min_tokens:
        refused = sampling.banned | request.stop_ids
        left = limits.token_count - len(refused)
        if sampling.allowed is not None:
            left = len(sampling.allowed - refused)
        if left < 1:
            raise ValueError(
                f"min_tokens {sampling.min_tokens} and no token but stop tokens left: nothing could be "
                "emitted; allow another token, or ask for min_tokens 0"
            )
