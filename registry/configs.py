"""What a config.json and a generation_config.json mean, apart from how they were written.

Knows the keys of Hugging Face configurations; reads no weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from registry.errors import FolderError
from registry.folders import json_of

VOLATILE = frozenset(  # how a folder was written or is run, not what the model computes
    {
        "_attn_implementation",
        "_from_model_config",
        "_name_or_path",
        "dtype",  # the tensors say it
        "output_attentions",
        "output_hidden_states",
        "torch_dtype",
        "transformers_version",
        "use_cache",
    }
)
GENERATION_KEYS = ("bos_token_id", "eos_token_id", "pad_token_id")
CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")


def meaning_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration without what is volatile, empty, or a generation default."""

    def meaning(value: Any) -> Any:
        if isinstance(value, Mapping):
            kept = {key: meaning(inner) for key, inner in value.items() if key not in VOLATILE}
            return {key: inner for key, inner in kept.items() if inner is not None}
        return [meaning(inner) for inner in value] if isinstance(value, list) else value

    kept: dict[str, Any] = meaning({k: v for k, v in config.items() if k not in GENERATION_KEYS})
    return kept


def generation_of(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """The folder's generation defaults; where they are silent, config.json, as transformers does.

    `eos_token_id` is always a sorted list.
    """
    written = json_of(folder, "generation_config.json") or {}
    kept = {k: v for k, v in written.items() if k not in VOLATILE and v is not None}
    for key in GENERATION_KEYS:
        if key not in kept and text_config(config).get(key) is not None:
            kept[key] = text_config(config)[key]
    ends = kept.get("eos_token_id")
    if ends is not None:
        kept["eos_token_id"] = sorted(ends) if isinstance(ends, list) else [ends]
    return kept


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a configuration that speaks of text; many-sided models nest it."""
    nested = config.get("text_config")
    return nested if isinstance(nested, Mapping) else config


def ties_embeddings(config: Mapping[str, Any]) -> bool:
    """Whether the configuration says that the output layer is the embedding."""
    tied = text_config(config).get("tie_word_embeddings", config.get("tie_word_embeddings"))
    return tied is True


def architecture_of(config: Mapping[str, Any], folder: Path) -> str:
    """The first architecture named. `FolderError` where none is."""
    names = config.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise FolderError(f"{folder}: its config.json names no architecture")
    return names[0]


def is_head(architecture: str) -> bool:
    """Whether a draft of this architecture reads the target's hidden states, as vLLM names them."""
    return "eagle" in architecture.lower()


def quantization_of(config: Mapping[str, Any]) -> str | None:
    """The quantization method, None where the weights are plain."""
    quantization = config.get("quantization_config")
    if not isinstance(quantization, Mapping):
        return None
    return str(quantization.get("quant_method", "unknown"))


def context_of(config: Mapping[str, Any], folder: Path) -> int:
    """Tokens the configuration allows. `FolderError` where it does not say."""
    for key in CONTEXT_KEYS:
        value = text_config(config).get(key)
        if type(value) is int and value > 0:
            return value
    raise FolderError(f"{folder}: its config.json has no max_position_embeddings")
