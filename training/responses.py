"""What regeneration leaves on disk for distillation: shards of the target's own answers.

A shard is a safetensors file of whole responses; it appears under its name only when complete, so
that a killed regeneration loses one shard at most. Knows tensors; knows no text.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

FIELDS = ("ids", "states", "top_ids", "top_probs")


@dataclass(frozen=True, slots=True)
class Response:
    """One prompt with the target's answer; n prompt tokens, m answer tokens."""

    prompt_id: str
    prompt_len: int  # n
    ids: Tensor  # [n + m] int32
    states: Tensor  # [n + m - 1, 3H] the target's low, middle and high hidden states
    top_ids: Tensor  # [m, kept] int32, likeliest tokens where each answer token was drawn
    top_probs: Tensor  # [m, kept] bfloat16, their probabilities

    @property
    def answer_len(self) -> int:
        return len(self.top_ids)


def write_shard(path: Path, responses: list[Response]) -> None:
    """Write `responses` to `path`, whole or not at all."""
    tensors = {
        f"{place}.{name}": getattr(response, name).contiguous()
        for place, response in enumerate(responses)
        for name in FIELDS
    }
    metadata = {
        f"{place}": f"{response.prompt_len} {response.prompt_id}"
        for place, response in enumerate(responses)
    }
    unfinished = path.with_suffix(".tmp")
    save_file(tensors, unfinished, metadata=metadata)
    os.replace(unfinished, path)


def read_shard(path: Path) -> list[Response]:
    """What `write_shard` wrote."""
    with safe_open(path, framework="pt") as shard:
        metadata = shard.metadata()
        found = []
        for place in range(len(metadata)):
            prompt_len, prompt_id = metadata[str(place)].split(" ", 1)
            tensors = {name: shard.get_tensor(f"{place}.{name}") for name in FIELDS}
            found.append(Response(prompt_id, int(prompt_len), **tensors))
        return found


def shards(folder: Path) -> list[Path]:
    """The complete shards of a regeneration, in order."""
    return sorted(folder.glob("shard-*.safetensors"))


def read_responses(folder: Path) -> Iterator[Response]:
    """Every response of a regeneration. Raises ValueError when there is none."""
    found = shards(folder)
    if not found:
        raise ValueError(f"{folder} holds no shard-*.safetensors: regenerate responses first")
    for path in found:
        yield from read_shard(path)


def token_counts(responses: list[Response], vocab_size: int) -> Tensor:
    """How much of the target's probability each token of its answers took, [V] float32."""
    mass = torch.zeros(vocab_size)
    for response in responses:
        mass.index_add_(0, response.top_ids.flatten().long(), response.top_probs.flatten().float())
    return mass
