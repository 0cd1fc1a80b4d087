"""Where a head's training starts, and the scale at which it reads the target's states.

A few channels of a language model's hidden states are hundreds of times larger than the others
("massive activations", Sun et al. 2024, arXiv 2402.17762; on SmolLM2 3,400 beside a median of 15).
A step of the optimizer would move the head through those channels alone. So a head is trained on
states divided by their root mean square, and `fc`, the one matrix that reads them, is written for
the states as they are: the same function, and the layout that serves.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from speculation.head import Head, head_config
from speculation.target import Target
from training.responses import Response

SAMPLED, ROWS = 100, 5  # every fifth position of the first hundred responses is plenty
FLAT = 0.3  # weight of the final norm: a fresh head is unsure of everything


def fresh_head(target: Target, token_ids: Tensor) -> Head:
    """A random head with the target's output rows.

    Starting its layer at the target's last one was tried and lost: 0.16 instead of 0.38 acceptance
    after 80 steps on SmolLM2. That layer predicts the next token, not the one after.
    """
    head = Head(head_config(target, draft_vocab=len(token_ids)))
    head.choose_tokens(token_ids)
    nn.init.normal_(head.fc.weight, std=head.fc.in_features**-0.5)
    for weight in head.midlayer.parameters():
        if weight.dim() == 2:
            nn.init.normal_(weight, std=0.02)
    nn.init.constant_(head.norm.weight, FLAT)
    with torch.no_grad():
        head.lm_head.weight.copy_(output_rows(target, token_ids))
    return head


def warm_head(start: Head, target: Target, token_ids: Tensor) -> Head:
    """The head `start` for the draft vocabulary `token_ids`; new tokens get the target's rows."""
    config = head_config(target, draft_vocab=len(token_ids))
    head = Head(config)
    kept = {
        k: v for k, v in start.state_dict().items() if k not in ("d2t", "t2d", "lm_head.weight")
    }
    head.load_state_dict(kept, strict=False)
    head.choose_tokens(token_ids)
    with torch.no_grad():
        head.lm_head.weight.copy_(output_rows(target, token_ids))
        known = start.t2d[token_ids]
        old_place = torch.full((len(start.t2d),), -1)
        old_place[start.token_ids] = torch.arange(len(start.d2t))
        head.lm_head.weight[known] = start.lm_head.weight[old_place[token_ids[known]]].float()
    return head


def output_rows(target: Target, token_ids: Tensor) -> Tensor:
    """The target's output embeddings of `token_ids`, float32."""
    weight: Tensor = target.model.get_output_embeddings().weight  # type: ignore[operator]  # untyped by transformers
    return weight[token_ids].float()


def frequent_tokens(mass: Tensor, count: int) -> Tensor:
    """The `count` tokens with the most of the target's probability, as ascending ids."""
    return mass.topk(min(count, len(mass))).indices.sort().values


def state_scale(responses: Sequence[Response]) -> Tensor:
    """Root mean square of each channel of the target's states over some responses, [3H] float32."""
    rows = torch.cat([response.states[::ROWS].float() for response in responses[:SAMPLED]])
    return rows.square().mean(dim=0).sqrt().clamp(min=1e-6)


@torch.no_grad()
def rescale(head: Head, scale: Tensor) -> Head:
    """Make `head` read states that are divided by `scale` [3H], or by 1 / `scale`."""
    head.fc.weight.mul_(scale.to(head.fc.weight))
    return head
