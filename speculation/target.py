"""A target model: its forward over a row cache, its logits, and the hidden states that heads read.

Knows torch and transformers' decoder-only models; knows token ids and nothing of text. Weights are
read from safetensors only, and no code that comes with a model is ever run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from speculation.attention import register
from speculation.cache import RowCache

DTYPES = {"auto": None, "float32": torch.float32, "bfloat16": torch.bfloat16}


class ModelFolderError(ValueError):
    """A model folder that cannot be loaded: what was found, what was wanted, what to do."""


def feature_layers(layer_count: int) -> tuple[int, int, int]:
    """The decoder layers whose inputs a head reads: low, middle and high, as vLLM takes them."""
    return (min(2, layer_count - 1), layer_count // 2, max(layer_count - 3, 0))


@dataclass
class Target:
    """A loaded target. `vocab_size` is the logits' width, which may exceed the token table."""

    model: nn.Module
    device: torch.device
    dtype: torch.dtype
    _features: dict[int, Tensor] = field(default_factory=dict)
    _captured: tuple[int, ...] = ()

    @property
    def config(self) -> Any:
        return self.model.config

    @property
    def vocab_size(self) -> int:
        return int(self.config.vocab_size)

    @property
    def embedding(self) -> Tensor:
        """The input embeddings [V, H]."""
        weight = self.model.get_input_embeddings().weight  # type: ignore[operator]  # nn.Module's __getattr__ hides transformers' method
        assert isinstance(weight, Tensor)
        return weight

    def new_cache(self, *, rows: int, max_len: int) -> RowCache:
        config = self.config
        heads = config.num_attention_heads
        return RowCache(
            layers=config.num_hidden_layers,
            rows=rows,
            heads=config.num_key_value_heads or heads,
            max_len=max_len,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
            dtype=self.dtype,
            device=self.device,
        )

    def capture(self, layers: Sequence[int]) -> None:
        """Keep the inputs of these decoder layers at every forward from now on.

        Raises ValueError when others are captured already: one target feeds heads of one layout.
        """
        wanted = tuple(layers)
        if wanted == self._captured:
            return
        if self._captured:
            raise ValueError(f"layers {wanted} asked for, {self._captured} are captured already")
        decoder: Any = self.model.get_decoder()  # type: ignore[operator]  # as in `embedding`

        def keep(layer: int) -> Any:
            def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
                self._features[layer] = inputs[0]

            return hook

        for layer in set(wanted):
            decoder.layers[layer].register_forward_pre_hook(keep(layer))
        self._captured = wanted

    def forward(
        self, ids: Tensor, positions: Tensor, cache: RowCache, rows: Sequence[int]
    ) -> tuple[Tensor, Tensor | None]:
        """Last hidden states [B, T, H], and the captured ones side by side [B, T, 3H] if any.

        `ids` and `positions` are [B, T]; padding at a row's end is harmless, it is never attended.
        """
        mask = cache.begin(rows, positions)
        decoder: Any = self.model.get_decoder()  # type: ignore[operator]  # as in `embedding`
        hidden = decoder(
            input_ids=ids, position_ids=positions, attention_mask=mask, cache=cache, use_cache=True
        ).last_hidden_state
        if not self._captured:
            return hidden, None
        return hidden, torch.cat([self._features[layer] for layer in self._captured], dim=-1)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [..., V] of last hidden states [..., H], in the model's dtype."""
        lm_head: Any = self.model.get_output_embeddings()  # type: ignore[operator]  # as in `embedding`
        logits: Tensor = lm_head(hidden)
        return logits


def load_target(folder: Path, *, dtype: str = "auto", device: str = "cpu") -> Target:
    """Load the Hugging Face directory `folder`. Raises ModelFolderError."""
    config = read_config(folder)
    if not any(folder.glob("*.safetensors")):
        raise ModelFolderError(
            f"{folder} holds no .safetensors file: wanted a Hugging Face model folder with its "
            "weights; save the model with save_pretrained() and give that folder"
        )
    if "auto_map" in config:
        raise ModelFolderError(
            f"{folder}/config.json has auto_map, code that comes with the model: Paceline runs no "
            "such code; use a model of an architecture that transformers has"
        )
    if dtype not in DTYPES:
        raise ModelFolderError(f"dtype {dtype!r}: wanted one of {', '.join(DTYPES)}")
    from transformers import AutoModelForCausalLM

    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=DTYPES[dtype] or "auto",
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            attn_implementation=register(),
        )
    except Exception as error:  # transformers and safetensors raise many kinds for a bad folder
        raise ModelFolderError(f"{folder} could not be loaded: {error}") from error
    model.to(torch.device(device))  # type: ignore[arg-type]  # its decorator hides `self`
    model.eval().requires_grad_(False)
    return Target(model, torch.device(device), next(model.parameters()).dtype)


def read_config(folder: Path) -> dict[str, Any]:
    """`config.json` of a model folder. Raises ModelFolderError."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        what = "holds no config.json" if folder.is_dir() else "is not a folder"
        raise ModelFolderError(
            f"{folder} {what}: wanted a Hugging Face model folder (config.json, *.safetensors, "
            "tokenizer.json)"
        ) from None
    except (OSError, ValueError) as error:
        raise ModelFolderError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(config, dict):
        raise ModelFolderError(f"{path} holds {type(config).__name__}: wanted a JSON object")
    return config
