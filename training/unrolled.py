"""The loss of a head over several draft positions, each fed with the head's own output.

EAGLE-3's training-time test (Li et al. 2025, arXiv 2503.01840, section 3): at draft position s the
head reads its own state of position s - 1 instead of the target's, as it will when it serves.
Letters: B responses, R rows at which a round may start, T context rows, H hidden, s draft position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from speculation.head import Head
from training.responses import Response


@dataclass(frozen=True, slots=True)
class Batch:
    """Padded responses. Row r of response b starts a round after its answer token r."""

    ids: Tensor  # [B, T + 1]
    states: Tensor  # [B, T, 3H], divided by their scale
    first: Tensor  # [B] context row of r = 0: the prompt's last position
    answer_lens: Tensor  # [B]
    top_ids: Tensor  # [B, M, kept]
    top_probs: Tensor  # [B, M, kept] float32


def collate(responses: Sequence[Response], scale: Tensor) -> Batch:
    """Pad `responses` into one batch on the device of `scale` [3H], which divides their states."""
    pad = torch.nn.utils.rnn.pad_sequence
    device = scale.device
    return Batch(
        pad([r.ids.long() for r in responses], batch_first=True).to(device),
        pad([r.states for r in responses], batch_first=True).to(device) / scale,
        torch.tensor([r.prompt_len - 1 for r in responses], device=device),
        torch.tensor([r.answer_len for r in responses], device=device),
        pad([r.top_ids.long() for r in responses], batch_first=True).to(device),
        pad([r.top_probs.float() for r in responses], batch_first=True).to(device),
    )


@dataclass(frozen=True, slots=True)
class Unrolled:
    """Loss and, for each draft position, how often a greedy draft would be judged and accepted."""

    loss: Tensor
    judged: list[int]
    accepted: list[int]


def unrolled(
    head: Head,
    embedding: Tensor,  # [V, H], the target's, frozen
    batch: Batch,
    *,
    positions: int,
    decay: float,
) -> Unrolled:
    """Cross entropy to the target's likeliest tokens, `decay` ** s at draft position s.

    The target's probability of tokens outside the draft vocabulary has no loss: the head can do
    nothing about it. `judged` and `accepted` are exact for greedy decoding: a position is judged
    where all before it were accepted.
    """
    layer, attention = head.midlayer, head.midlayer.self_attn
    context = batch.states.shape[1]
    device = batch.ids.device
    state_all = head.fc(batch.states.to(head.fc.weight.dtype))  # [B, T, H]
    mixed_all = layer.mixed(embedding[batch.ids[:, 1 : context + 1]], state_all)
    places = torch.arange(context, device=device)
    key_all = head.rotate(attention.split(attention.k_proj(mixed_all)), places[None])
    value_all = attention.split(attention.v_proj(mixed_all))  # [B, kv, T, D]

    width = int(batch.answer_lens.max()) - 1
    start = torch.arange(max(width, 0), device=device)  # r
    rows = (batch.first[:, None] + start).clamp(max=context - 1)  # [B, R]
    visible = places <= rows[..., None]  # [B, R, T]
    state = state_all.gather(1, rows[..., None].expand(-1, -1, state_all.shape[-1]))
    draft_index = torch.full((len(head.t2d),), -1, device=device)
    draft_index[head.token_ids] = torch.arange(len(head.d2t), device=device)

    own: list[tuple[Tensor, Tensor]] = []
    chained = torch.ones_like(rows, dtype=torch.bool)
    losses, judged, accepted = [], [], []
    for position in range(positions):
        token_place = (rows + 1 + position).clamp(max=batch.ids.shape[1] - 1)
        mixed = layer.mixed(embedding[batch.ids.gather(1, token_place)], state)
        query = head.rotate(attention.split(attention.q_proj(mixed)), rows + position)
        if position > 0:
            key = head.rotate(attention.split(attention.k_proj(mixed)), rows + position)
            own.append((key, attention.split(attention.v_proj(mixed))))
        state = layer.finish(attend(query, key_all, value_all, visible, own), state)

        label = start + 1 + position  # the answer token that row r drafts here
        valid = label < batch.answer_lens[:, None]
        if not bool(valid.any()):
            break
        which = torch.where(valid)
        top_ids = batch.top_ids[which[0], label[which[1]]]  # [N, kept]
        top_probs = batch.top_probs[which[0], label[which[1]]]
        logits = head.logits(state[which]).float()  # [N, draft vocabulary]
        place = draft_index[top_ids]
        log_draft = logits.log_softmax(dim=-1).gather(1, place.clamp(min=0))
        loss = -(top_probs * log_draft * (place >= 0)).sum(dim=-1).mean()
        losses.append(decay**position * loss)
        with torch.no_grad():
            hit = torch.zeros_like(chained)
            hit[which] = head.token_ids[logits.max(dim=-1).indices] == top_ids[:, 0]
            judged.append(int((chained & valid).sum()))
            chained = chained & hit
            accepted.append(int(chained.sum()))
    total = torch.stack(losses).sum() if losses else state.sum() * 0.0
    return Unrolled(total, judged, accepted)


def attend(
    query: Tensor,  # [B, n, R, D]
    key_all: Tensor,  # [B, kv, T, D]
    value_all: Tensor,  # [B, kv, T, D]
    visible: Tensor,  # [B, R, T] the target's rows that each round may read
    own: Sequence[tuple[Tensor, Tensor]],  # keys and values [B, kv, R, D] of the round's positions
) -> Tensor:  # [B, n, R, D]
    """Attention of each round over the target's rows before it and its own positions so far."""
    batch, heads, rows, width = query.shape
    grouped = query.view(batch, key_all.shape[1], -1, rows, width) * width**-0.5
    scores = torch.einsum("bkgrd,bktd->bkgrt", grouped, key_all)
    scores = scores.masked_fill(~visible[:, None, None], float("-inf"))
    mine = [(grouped * key[:, :, None]).sum(dim=-1, keepdim=True) for key, _ in own]
    weights = functional.softmax(torch.cat([scores, *mine], dim=-1).float(), dim=-1)
    weights = weights.to(query.dtype)
    context = key_all.shape[2]
    mixed = torch.einsum("bkgrt,bktd->bkgrd", weights[..., :context], value_all)
    for place, (_, value) in enumerate(own):
        mixed = mixed + weights[..., context + place, None] * value[:, :, None]
    return mixed.reshape(batch, heads, rows, width)
