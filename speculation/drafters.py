"""From the name or folder of a draft to what proposes tokens for a target.

Knows every kind of draft and what each must share with its target; the drafters know the rest.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from speculation.head import ARCHITECTURE, load_head
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
    "ModelDrafter",
    "NgramDrafter",
    "NoDrafter",
    "Proposal",
    "load_drafter",
]


def load_drafter(
    draft: str | Path,
    target: Target,
    *,
    rows: int,
    max_len: int,
    greedy_drafts: bool = False,
    shared_tokens: int = 0,
) -> Drafter:
    """The drafter that `draft` names: "ngram", "none", or a folder with a head or a causal model.

    `greedy_drafts` is for drafts with weights, `shared_tokens` for "ngram". Raises DraftError.
    """
    if str(draft) == "none":
        return NoDrafter()
    if str(draft) == "ngram":
        return NgramDrafter(shared_tokens)
    folder = Path(draft)
    try:
        if read_config(folder).get("architectures") == [ARCHITECTURE]:
            return _head_drafter(folder, target, rows, max_len, greedy_drafts)
        return _model_drafter(folder, target, rows, max_len, greedy_drafts)
    except ModelFolderError as error:
        raise DraftError(str(error)) from error


def _head_drafter(
    folder: Path, target: Target, rows: int, max_len: int, greedy_drafts: bool
) -> HeadDrafter:
    head = load_head(folder, dtype=target.dtype, device=target.device)
    wanted = (target.vocab_size, target.config.hidden_size)
    found = (head.config.vocab_size, head.config.hidden_size)
    if found != wanted:
        raise DraftError(
            f"{folder} was made for a target of (vocabulary, hidden size) {found}, this target has "
            f"{wanted}: train a draft for this target"
        )
    _check_finite(head, folder)
    return HeadDrafter(
        head, target.embedding, rows=rows, max_len=max_len, greedy_drafts=greedy_drafts
    )


def _model_drafter(
    folder: Path, target: Target, rows: int, max_len: int, greedy_drafts: bool
) -> ModelDrafter:
    dtype = next((name for name, dtype in DTYPES.items() if dtype == target.dtype), "auto")
    model = load_target(folder, dtype=dtype, device=str(target.device))
    _check_finite(model.model, folder)
    try:
        return ModelDrafter(
            model,
            vocab_size=target.vocab_size,
            rows=rows,
            max_len=max_len,
            greedy_drafts=greedy_drafts,
        )
    except DraftError as error:
        raise DraftError(f"{folder}: {error}") from error


def _check_finite(module: nn.Module, folder: Path) -> None:
    for name, weight in module.named_parameters():
        if not bool(torch.isfinite(weight).all()):
            raise DraftError(f"{folder} holds weights that are not finite ({name}): train it again")
