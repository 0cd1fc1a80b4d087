"""Which drafted tokens the target keeps, and the one it adds. Pure functions over probabilities.

Rejection sampling of Leviathan et al. 2023 (arXiv 2211.17192, algorithm 1) and the block
verification of Sun et al. 2024 (arXiv 2403.10444, algorithm 2), batched over ragged rows.
`reference` says both in plain lists. Letters: B sequences, K drafted tokens at most, V vocabulary.
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
    draft = _draft_at(draft_probs, draft_ids, accepted, target)
    return torch.where(rejected[:, None], _residual(target, draft, target), target)


def block_weights(
    target_probs: Tensor,  # [B, K + 1, V] float32
    draft_probs: Tensor,  # [B, K, V] float32
    draft_ids: Tensor,  # [B, K]
) -> Tensor:  # [B, K + 1] float32 in [0, 1]
    """How much of each prefix of the block the target would have written: p_i of the paper.

    The running product of target over draft, held at 1; 1 for the empty prefix.
    """
    width = draft_ids.shape[1]
    chosen = draft_ids[..., None]
    target = target_probs[:, :width].gather(-1, chosen)[..., 0]
    draft = draft_probs.gather(-1, chosen)[..., 0]
    weights = [torch.ones_like(target_probs[:, 0, 0])]
    for place in range(width):
        weights.append((weights[-1] * target[:, place] / draft[:, place]).clamp(max=1.0))
    return torch.stack(weights, dim=1)


def block_accept_count(
    target_probs: Tensor,  # [B, K + 1, V] float32
    draft_probs: Tensor,  # [B, K, V] float32
    draft_ids: Tensor,  # [B, K]
    draft_lens: Tensor,  # [B], 0..K
    uniform: Tensor,  # [B, K] in [0, 1)
    weights: Tensor,  # [B, K + 1], `block_weights`
) -> Tensor:  # [B] tokens kept: the longest prefix whose own draw succeeds
    """Keep the longest prefix i with u_i < h_i; strict, so never one of target probability 0."""
    width = draft_ids.shape[1]
    kept = torch.zeros_like(draft_lens)
    for place in range(1, width + 1):
        weight = weights[:, place]
        chance = weight  # of the whole block
        if place < width:
            left = weight[:, None] * target_probs[:, place] - draft_probs[:, place]
            left = left.clamp(min=0).sum(dim=-1)
            rest = left + 1 - weight
            inside = torch.where(rest > 0, left / rest.clamp(min=1e-38), torch.ones_like(rest))
            chance = torch.where(draft_lens == place, weight, inside)
        success = (uniform[:, place - 1] < chance) & (place <= draft_lens)
        kept = torch.where(success, torch.full_like(kept, place), kept)
    return kept


def block_next_probs(
    target_probs: Tensor,  # [B, K + 1, V] float32
    draft_probs: Tensor,  # [B, K, V] float32
    draft_ids: Tensor,  # [B, K]
    draft_lens: Tensor,  # [B]
    accepted: Tensor,  # [B]
    weights: Tensor,  # [B, K + 1]
) -> Tensor:  # [B, V] float32, each row sums to 1
    """The law of the token after the kept ones: norm(max(0, p_i * target - draft)), or the target
    after a whole block."""
    rows = torch.arange(target_probs.shape[0], device=target_probs.device)
    target = target_probs[rows, accepted]
    rejected = accepted < draft_lens
    if not bool(rejected.any()):
        return target
    draft = _draft_at(draft_probs, draft_ids, accepted, target)
    part = weights[rows, accepted][:, None] * target
    return torch.where(rejected[:, None], _residual(part, draft, target), target)


def _draft_at(
    draft_probs: Tensor | None, draft_ids: Tensor, accepted: Tensor, target: Tensor
) -> Tensor:
    """The draft's law at the first position that was not kept, [B, V]."""
    rows = torch.arange(len(accepted), device=accepted.device)
    place = accepted.clamp(max=max(draft_ids.shape[1] - 1, 0))
    if draft_probs is not None:
        return draft_probs[rows, place]
    draft = torch.zeros_like(target)
    draft[rows, draft_ids[rows, place]] = 1.0
    return draft


def _residual(target: Tensor, draft: Tensor, otherwise: Tensor) -> Tensor:
    """norm(max(0, target - draft)); `otherwise` where no mass is left. All [B, V]."""
    residual = (target - draft).clamp(min=0)
    # By the largest first: a residual may be all subnormal, and its sum has no inverse.
    peak = residual.amax(dim=-1, keepdim=True)
    scaled = residual / torch.where(peak > 0, peak, torch.ones_like(peak))
    scaled = scaled / scaled.sum(dim=-1, keepdim=True).clamp(min=1.0)
    return torch.where(peak > 0, scaled, otherwise)


def matching_accept_count(chosen: Tensor, draft_ids: Tensor, draft_lens: Tensor) -> Tensor:
    """Keep drafted tokens while they are what the target chose, `chosen` [B, K + 1].

    The limit of temperature 0, where that is the likeliest token, and all there is to verify where
    draft and target draw with the same noise (`streams.race`).
    """
    width = draft_ids.shape[1]
    kept = chosen[:, :width] == draft_ids
    kept &= torch.arange(width, device=draft_ids.device) < draft_lens[:, None]
    return kept.long().cumprod(dim=1).sum(dim=1)
