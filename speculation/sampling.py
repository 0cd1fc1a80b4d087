"""How one request's tokens are drawn, and the distribution that this makes of logits.

Token ids only. What a request's own past does to its logits is in `history`; this is the rest, and
`reference` says all of it again, slowly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

COLDEST = 1e-5  # below it logits over the temperature leave float32
FEW = 256  # likeliest tokens among which top-p usually ends; sorting a whole vocabulary is slow


@dataclass(frozen=True, slots=True)
class Sampling:
    """What one request asked for. The order is the one in which it is applied, as vLLM has it."""

    allowed: frozenset[int] | None = None  # no other token can be emitted; None allows all
    banned: frozenset[int] = frozenset()  # these cannot
    min_tokens: int = 0  # before these many are emitted, no stop token can be
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token, added to its logit)
    repetition_penalty: float = 1.0  # divides positive, multiplies negative logits of seen tokens
    frequency_penalty: float = 0.0  # off the logit, for each time the token was emitted
    presence_penalty: float = 0.0  # off the logit, once, of every token that was emitted
    temperature: float = 0.0  # under 1e-5 greedy: the likeliest token, the lowest id among equals
    min_p: float = 0.0  # keep tokens with at least this share of the likeliest one's mass
    top_k: int = 0  # keep the k most likely tokens and their equals; 0 keeps all
    top_p: float = 1.0  # keep the smallest set of tokens with at least this mass, low ids first
    seed: int | None = None  # None draws one from the operating system

    def __post_init__(self) -> None:
        for name, low, high in (
            ("min_tokens", 0, None),
            ("repetition_penalty", 0.01, 100),
            ("frequency_penalty", -100, 100),
            ("presence_penalty", -100, 100),
            ("temperature", 0, 100),
            ("min_p", 0, 1),
            ("top_k", 0, None),
        ):
            value = getattr(self, name)
            if not low <= value or (high is not None and not value <= high):
                bounds = f"at least {low}" if high is None else f"between {low} and {high}"
                raise ValueError(f"{name} {value}: it must be {bounds}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p {self.top_p}: it must be above 0 and at most 1")
        for token, bias in self.logit_bias:
            if not -1000 <= bias <= 1000:
                raise ValueError(f"logit_bias {bias} of token {token}: wanted -1000 to 1000")
        if self.allowed is not None and not self.allowed - self.banned:
            raise ValueError("every allowed token is banned: nothing could be emitted")

    @property
    def greedy(self) -> bool:
        return self.temperature < COLDEST

    @property
    def coupled(self) -> bool:
        """Whether draft and target draw with the same noise, so that K and draft change nothing."""
        return self.seed is not None and not self.greedy

    @property
    def penalised(self) -> bool:
        """Whether what was seen before changes the logits."""
        return (self.repetition_penalty, self.frequency_penalty, self.presence_penalty) != (1, 0, 0)

    @property
    def shaped(self) -> bool:
        """Whether the logits are changed before the temperature."""
        return bool(
            self.penalised
            or self.allowed is not None
            or self.banned
            or self.min_tokens
            or self.logit_bias
        )


def probabilities(logits: Tensor, sampling: Sampling) -> Tensor:
    """The distribution that `sampling` makes of `logits` [..., V]; float32, each row sums to 1."""
    rows = logits.reshape(1, -1, logits.shape[-1])
    return batch_probabilities(rows, [sampling]).view(logits.shape)


def batch_probabilities(logits: Tensor, samplings: Sequence[Sampling]) -> Tensor:
    """The distributions of `logits` [B, T, V], row i as `samplings[i]` wants; float32.

    Temperature, min-p, top-k, top-p. Logits of -inf (a token that cannot be) keep probability 0.
    """
    device = logits.device

    def column(values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=device)[:, None, None]

    greedy = [sampling.greedy for sampling in samplings]
    if all(greedy):
        return _one_hot(logits)
    # A greedy row is divided by 1 and replaced at the end.
    heat = column([1.0 if s.greedy else s.temperature for s in samplings])
    scaled = logits.float()
    scaled = (scaled - scaled.amax(dim=-1, keepdim=True)) / heat  # the largest cannot run over
    width = scaled.shape[-1]
    ks = [s.top_k if 0 < s.top_k < width and not s.greedy else 0 for s in samplings]
    if any(ks):
        place = torch.tensor([max(k, 1) - 1 for k in ks], device=device)[:, None, None]
        best = scaled.topk(max(ks), dim=-1).values
        weakest = best.gather(-1, place.expand(-1, scaled.shape[1], 1))
        weakest = weakest.masked_fill(column(ks) == 0, float("-inf"))
        kept = scaled >= weakest
    else:
        kept = None
    if any(s.min_p > 0 and not s.greedy for s in samplings):
        # p >= min_p * the largest p, in logits.
        floor = scaled.amax(dim=-1, keepdim=True) + column([s.min_p for s in samplings]).log()
        kept = scaled >= floor if kept is None else kept & (scaled >= floor)
    if kept is not None:
        scaled = scaled.masked_fill(~kept, float("-inf"))
    probs = scaled.softmax(dim=-1)
    nucleus = [i for i, s in enumerate(samplings) if s.top_p < 1 and not s.greedy]
    if nucleus:
        mass = column([samplings[i].top_p for i in nucleus])
        probs[nucleus] = _nucleus(probs[nucleus], mass)
    if any(greedy):
        rows = [i for i, each in enumerate(greedy) if each]
        probs[rows] = _one_hot(logits[rows])
    return probs


def _one_hot(logits: Tensor) -> Tensor:
    best = logits.max(dim=-1, keepdim=True).indices  # torch: the first of equal maxima
    # The dtype is said: a model that loads beside changes torch's default in every thread.
    zeros = torch.zeros(logits.shape, dtype=torch.float32, device=logits.device)
    return zeros.scatter_(-1, best, 1.0)


def _nucleus(probs: Tensor, mass: Tensor) -> Tensor:
    """The smallest set of likeliest tokens of `probs` [B, T, V] with at least `mass` [B, 1, 1].

    A token stays while the mass before it is short, so the first always stays. Among equals at the
    edge the lowest ids stay, whatever order a partial sort gives them.
    """
    for few in (min(FEW, probs.shape[-1]), probs.shape[-1]):
        ordered = probs.topk(few, dim=-1).values
        before = ordered.cumsum(dim=-1) - ordered
        if few == probs.shape[-1] or bool((before[..., -1:] >= mass).all()):
            break
    count = (before < mass).sum(dim=-1, keepdim=True).clamp(min=1)  # a tiny mass is 0 in float32
    edge = ordered.gather(-1, count - 1)
    above, equal = probs > edge, probs == edge
    left = count - above.sum(dim=-1, keepdim=True)
    kept = probs.masked_fill(~(above | (equal & (equal.cumsum(dim=-1) <= left))), 0.0)
    return kept / kept.sum(dim=-1, keepdim=True)
