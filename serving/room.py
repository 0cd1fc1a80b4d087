"""Whether another model fits beside what is served: what it needs, compared with what is free.

Pure but for `free_bytes`, which asks the machine. Reads headers and configurations, never weights.
An estimate: what it leaves out (buffers, fragmentation, the forward's own tensors) is the reserve.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from registry.configs import context_of, text_config
from registry.errors import FolderError
from registry.folders import config_of, weights_of
from registry.room import free_host_bytes, gigabytes
from registry.tensors import DTYPE_BITS
from serving.settings import ServeSettings
from speculation.cache import ROOM
from speculation.records import WITHOUT_WEIGHTS

RESERVE = 0.1  # of what is needed
DTYPE_BYTES = {"float32": 4, "bfloat16": 2}


class RoomError(ValueError):
    """What is asked for does not fit into this machine."""


@dataclass(frozen=True, slots=True)
class Need:
    """Memory in bytes."""

    weights_bytes: int = 0
    cache_bytes: int = 0

    def __add__(self, other: Need) -> Need:
        return Need(self.weights_bytes + other.weights_bytes, self.cache_bytes + other.cache_bytes)

    @property
    def bytes(self) -> int:
        return self.weights_bytes + self.cache_bytes


def fits(need: Need, free: int | None, *, reserve: float = RESERVE) -> bool:
    """Whether `need` and a reserve fit into `free` bytes; what nobody can tell is taken to fit."""
    return free is None or need.bytes * (1.0 + reserve) <= free


def need_of(folder: Path, *, cached_tokens: int, dtype: str) -> Need:
    """What the model in `folder` takes with a cache for so many tokens, loaded as `dtype`; "auto"
    is as it is stored. Raises FolderError."""
    tensors = weights_of(folder).values()
    item = DTYPE_BYTES.get(dtype)
    bits = [t.numel * (DTYPE_BITS[t.dtype] if item is None else 8 * item) for t in tensors]
    stored = max((DTYPE_BITS[t.dtype] // 8 for t in tensors), default=4)
    token = _token_bytes(text_config(config_of(folder)), item or min(max(stored, 2), 4))
    return Need(sum(bits) // 8, cached_tokens * token)


def target_need(settings: ServeSettings, folder: Path, context: int) -> Need:
    """What a target of that context takes as it is to be served. Raises FolderError."""
    tokens = _tokens(settings, context) + settings.prefix_tokens
    return need_of(folder, cached_tokens=tokens, dtype=settings.dtype)


def draft_need(settings: ServeSettings, folder: Path, context: int) -> Need:
    """What a draft takes for a target of that context. Raises FolderError."""
    return need_of(folder, cached_tokens=_tokens(settings, context), dtype=settings.dtype)


def _tokens(settings: ServeSettings, context: int) -> int:
    return settings.max_slots * (min(settings.max_context, context) + ROOM)


def check_start(settings: ServeSettings, free: int | None) -> None:
    """Raises RoomError where a target and its drafts, with what requests take, cannot fit into
    `free` bytes at all: said at once, and not by the system once it is full."""
    assert settings.target is not None
    context = context_of(config_of(settings.target), settings.target)
    need = target_need(settings, settings.target, context)
    for draft in settings.arms.values() if settings.trial else [settings.draft]:
        if draft in WITHOUT_WEIGHTS:
            continue
        with suppress(FolderError, OSError):  # loading it says what is wrong with it
            need += draft_need(settings, Path(draft), context)
    if not fits(need, free, reserve=0.0):
        raise RoomError(
            f"got max_slots {settings.max_slots} and max_context {settings.max_context}, for which "
            f"the model takes {gigabytes(need.weights_bytes)} and its requests "
            f"{gigabytes(need.cache_bytes)}; {gigabytes(free or 0)} are free: lower one of the two"
        )


def _token_bytes(config: Mapping[str, Any], item_bytes: int) -> int:
    """Keys and values of one position in all layers."""

    def whole(*names: str) -> int:
        return next((v for v in map(config.get, names) if isinstance(v, int) and v > 0), 1)

    heads = whole("num_key_value_heads", "num_attention_heads", "n_head")
    width = config.get("head_dim")
    if not isinstance(width, int):
        width = whole("hidden_size", "n_embd") // whole("num_attention_heads", "n_head")
    return 2 * whole("num_hidden_layers", "n_layer") * heads * width * item_bytes


def free_bytes(device: str) -> int | None:
    """What is free on `device` now; None where the machine does not tell."""
    if device.startswith("cuda"):
        place = torch.device(device)
        free, _ = torch.cuda.mem_get_info(place)
        # What torch holds and does not use it gives to whoever asks next.
        return free + torch.cuda.memory_reserved(place) - torch.cuda.memory_allocated(place)
    return free_host_bytes()
