"""Which requests an engine can serve. Checked at the door, trusted inside. Token ids only."""

from __future__ import annotations

from dataclasses import dataclass

from speculation.cache import MOST_DRAFTED
from speculation.sequence import Request


class RequestError(ValueError):
    """A request that cannot be served: what was got, what was wanted. `field` of Request or of
    its Sampling is what is wrong."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class Limits:
    """What an engine has."""

    max_len: int  # tokens of a sequence, its prompt's included
    token_count: int  # ids 0 to one less name tokens
    drafters: tuple[str, ...]
    adapters: tuple[str, ...]


def check(request: Request, limits: Limits) -> None:
    """Raises RequestError."""
    length = len(request.prompt_ids)
    if not request.prompt_ids:
        raise RequestError("0 prompt tokens: wanted 1 or more", "prompt_ids")
    if request.logprobs < 0:
        raise RequestError(f"logprobs {request.logprobs}: wanted 0 or more", "logprobs")
    if request.max_tokens < 1:
        raise RequestError(f"max_tokens {request.max_tokens}: wanted 1 or more", "max_tokens")
    if length + request.max_tokens > limits.max_len:
        raise RequestError(
            f"{length} prompt tokens and max_tokens {request.max_tokens} exceed the context of "
            f"{limits.max_len} tokens: shorten one of them",
            "max_tokens",
        )
    _check_tokens(request, limits)
    if request.drafter is not None and request.drafter not in limits.drafters:
        raise RequestError(
            f"drafter {request.drafter!r}: wanted one of {sorted(limits.drafters)}", "drafter"
        )
    if request.draft_len is not None and not 0 <= request.draft_len <= MOST_DRAFTED:
        raise RequestError(
            f"draft_len {request.draft_len}: wanted 0 to {MOST_DRAFTED}", "draft_len"
        )
    if request.adapter is not None and request.adapter not in limits.adapters:
        raise RequestError(
            f"adapter {request.adapter!r}: wanted one of {sorted(limits.adapters)}", "adapter"
        )


def _check_tokens(request: Request, limits: Limits) -> None:
    """Every id names a token, and some token can always be emitted."""
    sampling = request.sampling
    for field, ids in (
        ("prompt_ids", request.prompt_ids),
        ("logit_bias", [token for token, _ in sampling.logit_bias]),
        ("allowed", sampling.allowed or ()),
        ("banned", sampling.banned),
    ):
        for token in ids:
            if not 0 <= token < limits.token_count:
                raise RequestError(f"token id {token}: wanted 0 to {limits.token_count - 1}", field)
    if min(request.stop_ids, default=0) < 0:
        raise RequestError(f"token id {min(request.stop_ids)}: wanted 0 or more", "stop_ids")
    # A configuration may name an end beyond the table; it can never be met.
    ends = {token for token in request.stop_ids if token < limits.token_count}
    refused = sampling.banned | (ends if sampling.min_tokens else set())
    left = limits.token_count - len(refused)
    if sampling.allowed is not None:
        left = len(sampling.allowed - refused)
    if left < 1:
        raise RequestError(
            "no token is left that could be emitted: ban fewer, allow more, or ask for "
            "min_tokens 0",
            "banned" if sampling.banned else "min_tokens",
        )
