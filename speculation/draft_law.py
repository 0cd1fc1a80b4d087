"""The distribution that drafted tokens are drawn from. Knows sampling parameters and logits.

Losslessness needs only that a drafted token was really drawn from the law that is handed to
verification. Which law that is decides how much is kept: the nearer to the request's own, the more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from speculation.proposal import Ask
from speculation.sampling import Sampling, probabilities


def draft_law(
    logits: Tensor,  # [B, v] finite or -inf
    asks: Sequence[Ask],
    drafted: Sequence[Sequence[int]],  # target ids that each row has drafted in this round
    token_ids: Tensor | None,  # [v] the target id of each draft id; None: the same ids
) -> Tensor:  # [B, v] float32, each row sums to 1
    """Each row's logits under its request's temperature and truncation.

    Rows that ask for the same are computed together: a top-k or a sort over the vocabulary serves
    them all. `drafted` and `token_ids` are what penalties and bans would need; none apply yet.
    """
    assert len(asks) == len(drafted) == len(logits)
    groups: dict[Sampling, list[int]] = {}
    for place, ask in enumerate(asks):
        groups.setdefault(replace(ask.sampling, seed=None), []).append(place)
    if len(groups) == 1:
        return probabilities(logits, asks[0].sampling)
    law = torch.empty(logits.shape, dtype=torch.float32, device=logits.device)
    for sampling, places in groups.items():
        law[places] = probabilities(logits[places], sampling)
    return law
