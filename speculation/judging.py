"""What the target says to the tokens drafted in a round: how many stay, and the one that it adds.

The same for a prompt's first token, where nothing was drafted. Three kinds of rows: greedy ones
keep what the target would choose; coupled ones (a seed was given) what it draws with the noise that
the draft met too; the others go through rejection sampling or block verification. Token ids only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from speculation.history import Past, shaped
from speculation.sampling import batch_probabilities
from speculation.streams import Key, draw, race
from speculation.verification import (
    accept_count,
    block_accept_count,
    block_next_probs,
    block_weights,
    matching_accept_count,
    next_probs,
)


@dataclass(frozen=True, slots=True)
class Draft:
    """One row's drafted tokens, at most K, and what is needed to judge them."""

    ids: Sequence[int]
    law: Tensor | None  # [len(ids), V] that they were drawn from; None: one-hot
    past: Past
    key: Key
    committed: int  # tokens, the prompt's included, when the round started

    def upto(self, length: int) -> Draft:
        """The same draft, had it stopped after `length` tokens."""
        if length >= len(self.ids):
            return self
        law = None if self.law is None else self.law[:length]
        return replace(self, ids=self.ids[:length], law=law)


# Target and draft laws, ids, lengths, uniforms in; tokens kept and the next one's law out.
Verification = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def rejection(
    target_probs: Tensor, draft_probs: Tensor, ids: Tensor, lens: Tensor, uniform: Tensor
) -> tuple[Tensor, Tensor]:
    """Token by token: each is kept or not by its own draw."""
    width = ids.shape[1]
    kept = accept_count(target_probs[:, :width], draft_probs, ids, lens, uniform)
    return kept, next_probs(target_probs, draft_probs, ids, lens, kept)


def block(
    target_probs: Tensor, draft_probs: Tensor, ids: Tensor, lens: Tensor, uniform: Tensor
) -> tuple[Tensor, Tensor]:
    """By the block as a whole: at least as many are kept on average."""
    weights = block_weights(target_probs, draft_probs, ids)
    kept = block_accept_count(target_probs, draft_probs, ids, lens, uniform, weights)
    return kept, block_next_probs(target_probs, draft_probs, ids, lens, kept, weights)


VERIFICATIONS: dict[str, Verification] = {"rejection": rejection, "block": block}


def sound_places(logits: Tensor, wanted: Tensor) -> tuple[list[int], Tensor]:
    """How many first positions of each row a token can be drawn from, and `wanted` made harmless
    behind them. Both are [B, T, V]: the target's `logits`, and what its request made of them.

    A target whose numbers run over, or whose weights are broken, ends the requests that it does
    this to; so do numbers of which nothing is left for a request that allows few tokens. That is no
    draft's fault, and nothing that could be decoded plainly instead.
    """
    sound = torch.isfinite(logits.amax(dim=-1))  # [B, T]
    if wanted is not logits:
        sound &= torch.isfinite(wanted.amax(dim=-1))
    if not bool(sound.all()):
        wanted = wanted.masked_fill(~sound[..., None], 0.0)
    found: list[int] = sound.long().cumprod(dim=1).sum(dim=1).tolist()
    return found, wanted


def judge(
    logits: Tensor,  # [B, K + 1, V] of the target, after the last committed token and each drafted
    drafts: Sequence[Draft],
    verification: Verification = rejection,
) -> tuple[list[int], list[int | None]]:
    """Each row's kept count and the token that the target adds behind them; None where it has no
    number there. A position without a number ends its row only if the row gets there."""
    device, width = logits.device, logits.shape[1] - 1
    wanted = shaped(logits, [draft.past for draft in drafts], [draft.ids for draft in drafts])
    sound, logits = sound_places(logits, wanted)
    drafts = [draft.upto(place) for draft, place in zip(drafts, sound, strict=True)]
    padded = [[*draft.ids, *[0] * (width - len(draft.ids))] for draft in drafts]
    ids = torch.tensor(padded, dtype=torch.long, device=device).view(len(drafts), width)
    lens = torch.tensor([len(draft.ids) for draft in drafts], device=device)

    # The first of equal maxima, as argmax, which takes 30 times as long for bfloat16 on a CPU.
    chosen = logits.max(dim=-1).indices
    drawn = [row for row, draft in enumerate(drafts) if not draft.past.sampling.greedy]
    probs = logits
    if drawn:
        probs = batch_probabilities(logits[drawn], [drafts[row].past.sampling for row in drawn])
        for place, row in enumerate(drawn):
            if drafts[row].past.sampling.coupled:
                positions = len(drafts[row].ids) + 1
                chosen[row, :positions] = _raced(probs[place, :positions], drafts[row])
    kept = matching_accept_count(chosen, ids, lens)
    added = chosen.gather(1, kept[:, None])[:, 0]

    free = [place for place, row in enumerate(drawn) if not drafts[row].past.sampling.coupled]
    if free:
        rows = [drawn[place] for place in free]
        some = [drafts[row] for row in rows]
        had = _draft_laws(some, ids[rows], logits.shape[-1])
        uniform = [
            [draft.key.uniform(draft.committed, place, "accept") for place in range(width)]
            for draft in some
        ]
        picks = [draft.key.uniform(draft.committed, 0, "pick") for draft in some]
        kept[rows], law = verification(
            probs[free],
            had,
            ids[rows],
            lens[rows],
            torch.tensor(uniform, dtype=torch.float64, device=device).view(len(rows), width),
        )
        added[rows] = draw(law, torch.tensor(picks, dtype=torch.float64, device=device))
    counts: list[int] = kept.tolist()
    tokens: list[int] = added.tolist()
    ends = zip(counts, tokens, sound, strict=True)
    return counts, [token if count < place else None for count, token, place in ends]


def _raced(probs: Tensor, draft: Draft) -> Tensor:
    """What the target draws at each of a coupled row's positions [K + 1]."""
    length, width = probs.shape
    noise = [draft.key.exponentials(draft.committed + place, width) for place in range(length)]
    return race(probs, torch.stack(noise))


def _draft_laws(drafts: Sequence[Draft], ids: Tensor, width: int) -> Tensor:
    """[B, K, V]: one-hot where there is no law, and behind a row's end."""
    laws = torch.zeros((*ids.shape, width), dtype=torch.float32, device=ids.device)
    laws.scatter_(2, ids[..., None], 1.0)
    for row, draft in enumerate(drafts):
        if draft.law is not None:
            laws[row, : len(draft.law)] = draft.law
    return laws
