"""Which drafted tokens the target keeps, and the one it adds. Pure functions over probabilities.

Rejection sampling of Leviathan et al. 2023 (arXiv 2211.17192, algorithm 1), batched over ragged
rows. Letters: B sequences, K drafted tokens at most, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor


def accept_count(
    target_probs: Tensor,  # [B, K, V] float32
    draft_probs: Tensor | None,  # [B, K, V] float32, or None where every draft is one-hot
    draft_ids: Tensor,  # [B, K]
    draft_lens: Tensor,  # [B], 0..K
    uniform: Tensor,  # [B, K] in [0, 1)
) -> Tensor:  # [B] tokens kept
    """Keep drafted tokens while u < target/draft; strict, so never one of target probability 0."""
    width = draft_ids.shape[1]
    chosen = draft_ids[..., None]
    target = target_probs.gather(-1, chosen)[..., 0]
    draft = (
        torch.ones_like(target) if draft_probs is None else draft_probs.gather(-1, chosen)[..., 0]
    )
    # u * draft < target is u < target / draft without a division by zero.
    kept = uniform * draft < target
    kept &= torch.arange(width, device=draft_ids.device) < draft_lens[:, None]
    return kept.long().cumprod(dim=1).sum(dim=1)


def next_probs(
    target_probs: Tensor,  # [B, K + 1, V] float32
    draft_probs: Tensor | None,  # [B, K, V] float32, or None where every draft is one-hot
    draft_ids: Tensor,  # [B, K]
    draft_lens: Tensor,  # [B]
    accepted: Tensor,  # [B]
) -> Tensor:  # [B, V] float32, each row sums to 1
    """The law of the token after the kept ones.

    After a rejection norm(max(0, target - draft)); after full acceptance the target itself. A
    residual without mass (the two laws are equal, so that rounding alone rejected) is the target.
    """
    rows = torch.arange(target_probs.shape[0], device=target_probs.device)
    target = target_probs[rows, accepted]
    rejected = accepted < draft_lens
    if not bool(rejected.any()):
        return target
    place = accepted.clamp(max=max(draft_ids.shape[1] - 1, 0))
    if draft_probs is None:
        draft = torch.zeros_like(target)
        draft[rows, draft_ids[rows, place]] = 1.0
    else:
        draft = draft_probs[rows, place]
    residual = (target - draft).clamp(min=0)
    # By the largest first: a residual may be all subnormal, and its sum has no inverse.
    peak = residual.amax(dim=-1, keepdim=True)
    scaled = residual / torch.where(peak > 0, peak, torch.ones_like(peak))
    scaled = scaled / scaled.sum(dim=-1, keepdim=True).clamp(min=1.0)
    residual = torch.where(peak > 0, scaled, target)
    return torch.where(rejected[:, None], residual, target)


def greedy_accept_count(best: Tensor, draft_ids: Tensor, draft_lens: Tensor) -> Tensor:
    """The limit of temperature 0: keep drafted tokens while they are the `best` [B, K + 1]."""
    width = draft_ids.shape[1]
    kept = best[:, :width] == draft_ids
    kept &= torch.arange(width, device=draft_ids.device) < draft_lens[:, None]
    return kept.long().cumprod(dim=1).sum(dim=1)
