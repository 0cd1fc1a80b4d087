"""What of a transformers model is its decoder: what it stores of a position, and what follows it.

Knows transformers' calling conventions for models and caches; knows no tokens and no folders.
Both are asked of the model's own code, so that no architecture is told a second time here.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from speculation.architectures import Architecture, ModelFolderError


class States:
    """What a decoder gives: its last hidden states, and nothing of all else it could be asked."""

    def __init__(self, last_hidden_state: Tensor) -> None:
        self.last_hidden_state = last_hidden_state

    def __getitem__(self, place: int) -> Tensor:
        return (self.last_hidden_state,)[place]

    def __getattr__(self, name: str) -> None:
        return None


class Passed(nn.Module):
    """Stands where a model's decoder does and gives the hidden states that it is handed."""

    def forward(self, *_: Any, inputs_embeds: Tensor, **__: Any) -> States:
        return States(inputs_embeds)


def without_decoder(model: nn.Module) -> nn.Module:
    """What of a causal language model follows its decoder: `inputs_embeds` to logits.

    Output layer, scales and soft caps are the model's own code over the model's own weights, so
    that its last step needs no second telling here.
    """
    last = copy.copy(model)
    last._modules = dict(model._modules)
    last._modules[str(model.base_model_prefix)] = Passed()
    return last


@dataclass(frozen=True, slots=True)
class Layout:
    """What each of a decoder's layers stores of one position."""

    layers: int
    heads: int
    key_dim: int
    value_dim: int


class Recorder:
    """Stands where a cache does and notes what the layers would store."""

    is_compileable = False

    def __init__(self) -> None:
        self.stored: dict[int, tuple[int, int, int]] = {}

    def update(
        self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        self.stored[layer] = (keys.shape[1], keys.shape[3], values.shape[3])
        return keys, values

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0


@torch.inference_mode()
def layout_of(model: Any, architecture: Architecture) -> Layout:
    """What the layers store, seen from one token's forward. Raises ModelFolderError.

    A configuration may leave head counts and widths out or give each layer its own; what is
    stored is what counts.
    """
    recorder = Recorder()
    one = torch.zeros((1, 1), dtype=torch.long, device=model.device)
    mask = torch.ones((1, 1, 1, 1), dtype=torch.bool, device=model.device)
    masks = dict.fromkeys(architecture.windows, mask)
    model.get_decoder()(
        input_ids=one,
        position_ids=one,
        attention_mask=masks if len(masks) > 1 else mask,
        cache=recorder,
        use_cache=True,
    )
    layers = model.config.get_text_config(decoder=True).num_hidden_layers
    shapes = set(recorder.stored.values())
    if sorted(recorder.stored) != list(range(layers)) or len(shapes) != 1:
        raise ModelFolderError(
            f"this {architecture.name} model stores keys and values of the shapes "
            f"{sorted(shapes)} in {len(recorder.stored)} of its {layers} layers: wanted one shape "
            "(heads, key width, value width) in every layer"
        )
    return Layout(layers, *shapes.pop())
