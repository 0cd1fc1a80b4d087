"""From logits to the distribution that a request asked for. Token ids only."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one request's tokens are drawn."""

    temperature: float = 0.0  # 0 is greedy: the most likely token, the lowest id among equals
    top_k: int = 0  # keep the k most likely tokens; 0 keeps all
    top_p: float = 1.0  # keep the smallest set of tokens with at least this mass
    seed: int | None = None  # None draws one from the operating system

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 100:
            raise ValueError(f"temperature {self.temperature}: it must be between 0 and 100")
        if self.top_k < 0:
            raise ValueError(f"top_k {self.top_k}: it must be 0 (all tokens) or more")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p {self.top_p}: it must be above 0 and at most 1")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


def probabilities(logits: Tensor, sampling: Sampling) -> Tensor:
    """The distribution that `sampling` makes of `logits` [..., V]; float32, each row sums to 1.

    Temperature first, then top-k, then top-p over what is left, as transformers and vLLM do.
    """
    if sampling.greedy:
        best = logits.argmax(dim=-1, keepdim=True)  # torch: the first of equal maxima
        # The dtype is said: a model that loads beside changes torch's default in every thread.
        zeros = torch.zeros(logits.shape, dtype=torch.float32, device=logits.device)
        return zeros.scatter_(-1, best, 1.0)
    scaled = logits.float() / sampling.temperature
    if 0 < sampling.top_k < scaled.shape[-1]:
        weakest = scaled.topk(sampling.top_k, dim=-1).values[..., -1:]
        scaled = scaled.masked_fill(scaled < weakest, float("-inf"))
    probs = scaled.softmax(dim=-1)
    if sampling.top_p < 1:
        ordered, order = probs.sort(dim=-1, descending=True, stable=True)
        # A token stays while the mass before it is short of top_p, so the first always stays.
        dropped = ordered.cumsum(dim=-1) - ordered >= sampling.top_p
        ordered = ordered.masked_fill(dropped, 0.0)
        probs = torch.zeros_like(probs).scatter_(-1, order, ordered)
        probs = probs / probs.sum(dim=-1, keepdim=True)
    return probs


def stream(seed: int, committed: int, purpose: str) -> torch.Generator:
    """The random stream of one purpose ("draft", "accept", "pick") in one round of one request.

    Keyed by the tokens committed when the round starts, so that a restart, the batch mates and
    the draws of other rounds change nothing.
    """
    key = hashlib.blake2b(f"{seed}/{committed}/{purpose}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(key, "big") >> 1)


def draw(probs: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
    """One token for each row of `probs` [B, V], each from its own generator; ids [B]."""
    picked = [
        torch.multinomial(row, 1, generator=generator)
        for row, generator in zip(probs.cpu(), generators, strict=True)
    ]
    return torch.cat(picked).to(probs.device)
