"""Attention of few queries over a long cache, as decoding needs it. Knows tensors only.

On a CPU torch's fused kernel is made for many queries: with one bfloat16 query a sequence and 300
cached tokens (9 heads over 3 key heads of 64, one thread) it took 428 us against 161 us here, with
16 sequences 6,952 against 1,368. It stays in use on other devices.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

NAME = "paceline"
FEW = 64  # query rows of one key head


def register() -> str:
    """Make this attention known to transformers; returns the name it is loaded by."""
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    return NAME


def grouped(
    query: Tensor,  # [B, n, T, D]
    key: Tensor,  # [B, kv, L, D]
    value: Tensor,  # [B, kv, L, Dv]
    mask: Tensor | None,  # [B or 1, 1, T, L] bool, True may be attended; None: all
    *,
    scaling: float,
    softcap: float | None = None,
    sinks: Tensor | None = None,  # [n]
) -> Tensor:  # [B, n, T, Dv]
    """Softmax attention where n / kv query heads share a key head; the softmax is in float32.

    The query heads that share a key head are rows of one matrix product, so that keys and values
    are read once and copied never. `softcap` bounds the scores, softcap * tanh(score / softcap)
    (Gemma 2, arXiv 2408.00118, section 2), before any is masked. A head's sink is the score of a
    position that has no value: it takes its share of the weight (gpt-oss, arXiv 2508.10925).
    """
    batch, heads, length, width = query.shape
    key_heads, context = key.shape[1], key.shape[2]
    rows = (query * scaling).reshape(batch, key_heads, -1, width)
    if rows.shape[2] < FEW:
        # Many keys by few queries is the faster way round (16 sequences, 350 cached tokens, one
        # thread: 189 us against 508), for a prompt's many queries the slower one.
        scores = (key @ rows.transpose(2, 3)).transpose(2, 3).contiguous()
    else:
        scores = rows @ key.transpose(2, 3)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if mask is not None:
        by_head = scores.view(batch, key_heads, -1, length, context)
        scores = by_head.masked_fill(~mask[:, :, None], float("-inf")).view_as(scores)
    if sinks is not None:
        sink = sinks.view(1, key_heads, -1, 1).expand(batch, -1, -1, length)
        scores = torch.cat([scores, sink.reshape(batch, key_heads, -1, 1)], dim=-1)
    weights = scores.softmax(dim=-1, dtype=torch.float32).to(value.dtype)
    if sinks is not None:
        weights = weights[..., :-1]
    return (weights @ value).view(batch, heads, length, value.shape[-1])


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    softcap: float | None = None,
    dropout: float = 0.0,
    **options: Any,
) -> tuple[Tensor, None]:
    """transformers' calling convention; gives [B, T, n, Dv]."""
    sinks = options.get("s_aux")
    masked = attention_mask is None or attention_mask.dtype == torch.bool
    causal = attention_mask is None and query.shape[2] > 1
    odd = softcap is not None or sinks is not None  # torch's kernels know neither
    if (query.device.type != "cpu" and not odd) or not masked or causal:
        assert not odd, "a target with soft caps or sinks is always handed a boolean mask"
        attended, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
        )
        return attended, None
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    attended = grouped(
        query, key, value, attention_mask, scaling=scale, softcap=softcap, sinks=sinks
    )
    return attended.transpose(1, 2), None
