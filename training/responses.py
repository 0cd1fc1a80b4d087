"""What regeneration leaves on disk for distillation: shards of the target's own answers.

A shard is a safetensors file of whole responses; it appears under its name only when complete, so
that a killed regeneration loses one shard at most. Knows tensors; knows no text.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

T = TypeVar("T")
FIELDS = ("ids", "states", "top_ids", "top_probs")
SHORTEST = 2  # tokens of an answer that something can be learned from
VALIDATION = 0.06  # share of the responses that only choose the checkpoint


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


def answers(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """Prompt id and token ids of every response that is long enough, in order, read alone."""
    for path in shards(folder):
        with safe_open(path, framework="pt") as shard:
            metadata = shard.metadata()
            for place in range(len(metadata)):
                if shard.get_slice(f"{place}.top_ids").get_shape()[0] >= SHORTEST:
                    prompt_id = metadata[str(place)].split(" ", 1)[1]
                    yield prompt_id, shard.get_tensor(f"{place}.ids")


def data_digest(folder: Path) -> str:
    """sha256 of what was answered to what, whatever the order in which answers ended."""
    whole = hashlib.sha256()
    for prompt_id, ids in sorted(answers(folder), key=lambda answer: answer[0]):
        whole.update(f"{prompt_id}\n{ids.tolist()}\n".encode())
    return whole.hexdigest()


def split(responses: Sequence[T], seed: int) -> tuple[list[T], list[T]]:
    """Those to learn from, and those that only choose the checkpoint (one at least).

    Follows from how many there are and from the seed: ids are split as their responses are.
    """
    shuffled = list(responses)
    random.Random(seed).shuffle(shuffled)
    held_out = max(1, round(VALIDATION * len(shuffled)))
    return shuffled[held_out:], shuffled[:held_out]


def token_counts(responses: list[Response], vocab_size: int) -> Tensor:
    """How much of the target's probability each token of its answers took, [V] float32."""
    mass = torch.zeros(vocab_size)
    for response in responses:
        mass.index_add_(0, response.top_ids.flatten().long(), response.top_probs.flatten().float())
    return mass
