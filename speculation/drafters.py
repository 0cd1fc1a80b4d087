"""From the name or folder of a draft to what proposes tokens for a target.

Knows every kind of draft and what each must share with its target; the drafters know the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import nn

from speculation.head import ARCHITECTURE, Head, load_head
from speculation.head_drafter import HeadDrafter
from speculation.model_drafter import ModelDrafter
from speculation.ngram_drafter import NgramDrafter
from speculation.proposal import Ask, Drafter, DraftError, NoDrafter, Proposal
from speculation.target import DTYPES, ModelFolderError, Target, load_target, read_config

__all__ = [
    "Ask",
    "DraftError",
    "Drafter",
    "HeadDrafter",
    "Make",
    "ModelDrafter",
    "NgramDrafter",
    "NoDrafter",
    "Proposal",
    "load_drafter",
    "read_draft",
]

Make = Callable[[], Drafter]


def load_drafter(
    draft: str | Path,
    target: Target,
    *,
    rows: int,
    max_len: int,
    token_count: int | None = None,
    greedy_drafts: bool = False,
    shared_tokens: int = 0,
) -> Drafter:
    """The drafter that `draft` names: "ngram", "none", or a folder with a head or a causal model.

    The target's ids from `token_count` on name no token and are not drafted by a model.
    `greedy_drafts` is for drafts with weights, `shared_tokens` for "ngram". Raises DraftError.
    """
    return read_draft(
        draft,
        target,
        rows=rows,
        max_len=max_len,
        token_count=token_count,
        greedy_drafts=greedy_drafts,
        shared_tokens=shared_tokens,
    )()


def read_draft(
    draft: str | Path,
    target: Target,
    *,
    rows: int,
    max_len: int,
    token_count: int | None = None,
    greedy_drafts: bool = False,
    shared_tokens: int = 0,
) -> Make:
    """As `load_drafter`, for who may need it anew: each drafter that is made has caches of its own
    over the same weights, which are read here and now."""
    if str(draft) == "none":
        return NoDrafter
    if str(draft) == "ngram":
        return partial(NgramDrafter, shared_tokens)
    folder = Path(draft)
    try:
        if read_config(folder).get("architectures") == [ARCHITECTURE]:
            return partial(
                HeadDrafter,
                _head(folder, target),
                target.embedding,
                rows=rows,
                max_len=max_len,
                greedy_drafts=greedy_drafts,
            )
        model = _model(folder, target)
    except ModelFolderError as error:
        raise DraftError(str(error)) from error

    def make() -> Drafter:
        try:
            return ModelDrafter(
                model,
                vocab_size=target.vocab_size,
                token_count=token_count,
                rows=rows,
                max_len=max_len,
                greedy_drafts=greedy_drafts,
            )
        except ModelFolderError as error:
            raise DraftError(str(error)) from error

    return make


def _head(folder: Path, target: Target) -> Head:
    head = load_head(folder, dtype=target.dtype, device=target.device)
    wanted = (target.vocab_size, target.config.hidden_size)
    found = (head.config.vocab_size, head.config.hidden_size)
    if found != wanted:
        raise DraftError(
            f"{folder} was made for a target of (vocabulary, hidden size) {found}, this target has "
            f"{wanted}: train a draft for this target"
        )
    _check_finite(head, folder)
    return head


def _model(folder: Path, target: Target) -> Target:
    dtype = next((name for name, dtype in DTYPES.items() if dtype == target.dtype), "auto")
    model = load_target(folder, dtype=dtype, device=str(target.device))
    _check_finite(model.model, folder)
    return model


def _check_finite(module: nn.Module, folder: Path) -> None:
    for name, weight in module.named_parameters():
        if not bool(torch.isfinite(weight).all()):
            raise DraftError(f"{folder} holds weights that are not finite ({name}): train it again")
