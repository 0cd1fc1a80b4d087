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
TIED_BY_DEFAULT = frozenset(  # model types whose class ties embeddings unless it is told not to
    {"bloom", "cohere", "cohere2", "ernie4_5", "falcon", "gemma", "gemma2", "gemma3"}
    | {"gemma3_text", "gpt2", "gpt_bigcode", "gpt_neo", "mpt", "opt", "smollm3", "starcoder2"}
    | {"vaultgemma", "xglm"}
)
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
        kept["eos_token_id"] = sorted(_ids(ends, folder))
    return kept


def _ids(written: object, folder: Path) -> set[int]:
    ids = written if isinstance(written, list) else [written]
    if any(type(one) is not int for one in ids):
        raise FolderError(f"{folder}: eos_token_id: got {written!r:.80}, wanted whole numbers")
    return set(ids)


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a configuration that speaks of text; many-sided models nest it."""
    nested = config.get("text_config")
    return nested if isinstance(nested, Mapping) else config


def ties_embeddings(config: Mapping[str, Any]) -> bool:
    """Whether the configuration says that the output layer is the embedding."""
    text = text_config(config)
    tied = text.get("tie_word_embeddings", config.get("tie_word_embeddings"))
    if tied is None:  # transformers 4 left out what its class has by default
        return text.get("model_type", config.get("model_type")) in TIED_BY_DEFAULT
    return tied is True


def whole(config: Mapping[str, Any], key: str, folder: Path, *, default: int | None = None) -> int:
    """A count of the text configuration. `FolderError` where it is none, or none from 0 on."""
    value = text_config(config).get(key, default)
    if type(value) is not int or value < 0:
        raise FolderError(f"{folder / 'config.json'}: {key}: got {value!r:.80}, wanted a number")
    return value


def architecture_of(config: Mapping[str, Any], folder: Path) -> str:
    """The first architecture named. `FolderError` where none is."""
    if is_speculators(config):
        raise FolderError(
            f"{folder}: is laid out for the speculators library: `paceline import` makes a head of "
            "it that is served here"
        )
    names = config.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise FolderError(f"{folder}: its config.json names no architecture")
    return names[0]


def is_speculators(config: Mapping[str, Any]) -> bool:
    """Whether it is a draft in the layout of the `speculators` project."""
    return "speculators_model_type" in config


def is_head(architecture: str) -> bool:
    """Whether a draft of this architecture reads the target's hidden states, as vLLM names them."""
    return "eagle" in architecture.lower()


def holds_head(folder: Path) -> bool:
    """Whether the folder's config.json, if it has one, names a head."""
    names = (json_of(folder, "config.json") or {}).get("architectures")
    return isinstance(names, list) and bool(names) and is_head(str(names[0]))


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
