"""The distribution that drafted tokens are drawn from. Knows sampling parameters and logits.

Losslessness needs only that a drafted token was really drawn from the law that is handed to
verification. Which law that is decides how much is kept: the nearer to the request's own, the more.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from speculation.history import shaped
from speculation.proposal import Ask
from speculation.sampling import batch_probabilities


def draft_logits(
    logits: Tensor,  # [B, v]
    asks: Sequence[Ask],
    drafted: Sequence[Sequence[int]],  # target ids that each row has drafted in this round
    columns: Tensor | None,  # [v] the target id of each logit; None: all the target's, in order
) -> Tensor:  # [B, v]; the same tensor where no row asked for anything
    """Logits under each request's penalties, bias and bans, with the drafted tokens in its past.

    A row whose every draft token is banned is left as it was: its draft is only a guess.
    """
    rows = [place for place, ask in enumerate(asks) if ask.past and ask.past.sampling.shaped]
    if not rows:
        return logits
    changed = logits.to(torch.float32, copy=True)
    for place in rows:
        past = asks[place].past
        assert past is not None
        row = shaped(
            changed[place][None, None],
            [past],
            [drafted[place]],
            first=len(drafted[place]),
            columns=columns,
        )[0, 0]
        if bool((row > float("-inf")).any()):
            changed[place] = row
    return changed


def draft_law(
    logits: Tensor,  # [B, v] as `draft_logits` gives them; finite or -inf
    asks: Sequence[Ask],
) -> Tensor:  # [B, v] float32, each row sums to 1
    """Each row's logits under its request's temperature and truncation."""
    return batch_probabilities(logits[:, None], [ask.sampling for ask in asks])[:, 0]
