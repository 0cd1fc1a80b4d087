"""From the target's responses to a draft on disk. Knows tensors and files; knows no text.

A hundred-line loop rather than a trainer: what it optimises is unusual (`unrolled`), and the
checkpoint that is kept is the one with the best acceptance on responses it never saw.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from speculation.head import Head, load_head, save_head
from speculation.target import load_target
from training.initial import frequent_tokens, fresh_head, rescale, state_scale, warm_head
from training.progress import Progress, silent
from training.recipe import Recipe
from training.responses import SHORTEST, Response, read_responses, split, token_counts
from training.unrolled import collate, unrolled

WARMUP = 0.03  # share of the steps


def distill(
    target_folder: Path,
    responses: Path,
    out: Path,
    *,
    recipe: Recipe,
    start: Path | None = None,
    device: str = "cpu",
    progress: Progress = silent,
) -> Path:
    """Train a head on `responses`, from the head `start` if given; returns the draft's folder.

    Beside the draft lie curves.json and recipe.json. After each epoch a checkpoint is written in
    `out`, from which the same call goes on. Raises ModelFolderError and ValueError.
    """
    draft = out / "draft"
    if draft.is_dir():
        return draft
    out.mkdir(parents=True, exist_ok=True)
    target = load_target(target_folder, device=device)
    everything = [r for r in read_responses(responses) if r.answer_len >= SHORTEST]
    training, validation = split(everything, recipe.seed)
    if not training:
        raise ValueError(f"{responses} holds {len(everything)} usable responses: wanted at least 2")

    torch.manual_seed(recipe.seed)
    scale = state_scale(training).to(device)
    token_ids = frequent_tokens(token_counts(training, target.vocab_size), recipe.draft_vocab)
    if start is None:
        head = fresh_head(target, token_ids)
    else:
        old = load_head(start, dtype=torch.float32, device=torch.device("cpu"))
        head = rescale(warm_head(old, target, token_ids), scale)
    head = head.float().to(device).train()
    embedding = target.embedding.detach()
    optimizer = torch.optim.AdamW(head.parameters(), lr=recipe.learning_rate, weight_decay=0.0)
    curves: list[dict[str, Any]] = []
    best, finished = -1.0, 0
    checkpoint = out / "checkpoint.pt"
    _recover(out / "best")
    if checkpoint.is_file():
        stored = torch.load(checkpoint, weights_only=True)
        head.load_state_dict(stored["head"])
        optimizer.load_state_dict(stored["optimizer"])
        curves, best, finished = stored["curves"], stored["best"], stored["epoch"]

    per_epoch = math.ceil(len(training) / recipe.batch)
    total = per_epoch * recipe.epochs
    for epoch in range(finished, recipe.epochs):
        losses = []
        for number, batch in enumerate(_batches(training, recipe, epoch)):
            done = epoch * per_epoch + number
            for group in optimizer.param_groups:
                group["lr"] = recipe.learning_rate * _schedule(done, total)
            with torch.autocast(device_type=head.fc.weight.device.type, dtype=torch.bfloat16):
                result = unrolled(
                    head,
                    embedding,
                    collate(batch, scale),
                    positions=recipe.unroll,
                    decay=recipe.position_decay,
                )
            optimizer.zero_grad()
            result.loss.backward()
            torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
            optimizer.step()
            losses.append(result.loss.item())
            progress(done + 1, total, "training steps")
        judged, accepted = validate(head, embedding, validation, scale, recipe)
        acceptance = sum(accepted) / max(sum(judged), 1)
        curves.append(
            {
                "epoch": epoch + 1,
                "loss": sum(losses) / len(losses),
                "validation_acceptance": acceptance,
                "validation_judged": judged,
                "validation_accepted": accepted,
            }
        )
        if acceptance > best:
            best = acceptance
            save_head(rescale(_copy(head), 1 / scale).to(target.dtype), out / "best.new")
            _put(out / "best.new", out / "best")
        _save(checkpoint, head, optimizer, curves, best, epoch + 1)

    (out / "curves.json").write_text(json.dumps(curves, indent=2) + "\n")
    (out / "recipe.json").write_text(json.dumps(asdict(recipe), indent=2) + "\n")
    os.replace(out / "best", draft)
    checkpoint.unlink(missing_ok=True)
    return draft


@torch.no_grad()
def validate(
    head: Head,
    embedding: torch.Tensor,
    responses: list[Response],
    scale: torch.Tensor,
    recipe: Recipe,
) -> tuple[list[int], list[int]]:
    """Judged and accepted tokens at each draft position, as greedy decoding would count them.

    `head` reads states divided by `scale` [3H].
    """
    judged, accepted = [0] * recipe.unroll, [0] * recipe.unroll
    for place in range(0, len(responses), recipe.batch):
        batch = collate(responses[place : place + recipe.batch], scale)
        with torch.autocast(device_type=head.fc.weight.device.type, dtype=torch.bfloat16):
            result = unrolled(
                head, embedding, batch, positions=recipe.unroll, decay=recipe.position_decay
            )
        for position, (seen, kept) in enumerate(zip(result.judged, result.accepted, strict=True)):
            judged[position] += seen
            accepted[position] += kept
    return judged, accepted


def _batches(responses: list[Response], recipe: Recipe, epoch: int) -> Iterator[list[Response]]:
    """Batches of similar length, in an order of the epoch's own."""
    ordered = sorted(responses, key=lambda response: len(response.ids))
    batches = [ordered[i : i + recipe.batch] for i in range(0, len(ordered), recipe.batch)]
    random.Random(recipe.seed * 1000 + epoch).shuffle(batches)
    yield from batches


def _schedule(step: int, total: int) -> float:
    """Linear warm-up, then a cosine to nothing."""
    warmup = max(1, round(WARMUP * total))
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))


def _copy(head: Head) -> Head:
    copy = Head(head.config)
    copy.load_state_dict(head.state_dict())
    return copy.to(head.fc.weight.device)


def _put(new: Path, folder: Path) -> None:
    """Make `new` the folder `folder`; killed in between, `_recover` finds the old one."""
    old = folder.with_suffix(".old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        os.replace(folder, old)
    os.replace(new, folder)
    shutil.rmtree(old, ignore_errors=True)


def _recover(folder: Path) -> None:
    old = folder.with_suffix(".old")
    if old.exists() and not folder.exists():
        os.replace(old, folder)


def _save(
    path: Path,
    head: Head,
    optimizer: torch.optim.Optimizer,
    curves: list[dict[str, Any]],
    best: float,
    epoch: int,
) -> None:
    unfinished = path.with_suffix(".tmp")
    torch.save(
        {
            "head": head.state_dict(),
            "optimizer": optimizer.state_dict(),
            "curves": curves,
            "best": best,
            "epoch": epoch,
        },
        unfinished,
    )
    os.replace(unfinished, path)
