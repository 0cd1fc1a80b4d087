"""Which of transformers' architectures can be a target, and how each one looks back.

Knows model folders' config.json and transformers' configurations; knows no weights and no tokens.
A drafted token that is rejected must leave no trace. A key/value cache forgets it by its length
alone; a recurrent state has mixed it in and cannot. So an architecture is served only when it
keeps nothing but keys and values, one of each per position and layer, and when a test has shown
its output to be `generate`'s own, token for token.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FULL, SLIDING = "full_attention", "sliding_attention"  # transformers' names of layer kinds

# Each is shown in tests/speculation/test_architectures.py; a type that is not, is not served.
SERVED = frozenset(
    {"arcee", "cohere", "cohere2", "ernie4_5", "exaone4", "gemma", "gemma2", "gemma3"}
    | {"gemma3_text", "glm", "glm4", "glm4_moe", "gpt_neox", "gpt_oss", "granite", "granitemoe"}
    | {"helium", "hunyuan_v1_dense", "llama", "ministral", "ministral3", "mistral", "mixtral"}
    | {"nemotron", "olmo", "olmo2", "olmo3", "olmoe", "phi", "phi3", "phimoe", "qwen2"}
    | {"qwen2_moe", "qwen3", "qwen3_moe", "seed_oss", "smollm3", "stablelm", "starcoder2"}
    | {"vaultgemma"}
)


class ModelFolderError(ValueError):
    """A model folder that cannot be loaded: what was found, what was wanted, what to do."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """How a model attends to what it has cached."""

    name: str  # transformers' model_type
    # Layer kind -> how many of the latest positions it sees, its own included; None: all.
    windows: Mapping[str, int | None]
    # Positions there may be: beyond them the rotary frequencies change for the whole batch.
    longest: int | None = None


def architecture_of(folder: Path) -> Architecture:
    """What the config.json of `folder` says, before any weight is read. Raises ModelFolderError."""
    raw = read_config(folder)
    if "auto_map" in raw:
        raise ModelFolderError(
            f"{folder}/config.json has auto_map, code that comes with the model: Paceline runs no "
            "such code; use a model of an architecture that transformers has"
        )
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers raises many kinds for a bad configuration
        raise ModelFolderError(f"{folder}/config.json could not be read: {error}") from error
    text = config.get_text_config(decoder=True)
    kinds = layer_kinds(text)
    reason = why_not(config, kinds)
    if reason is not None:
        raise ModelFolderError(f"{folder} holds a {config.model_type!r} model, which {reason}")
    window = getattr(text, "sliding_window", None)
    if SLIDING in kinds and not (isinstance(window, int) and window > 0):
        raise ModelFolderError(
            f"{folder}/config.json has sliding layers and sliding_window {window!r}: wanted the "
            "positions that they see, 1 or more"
        )
    windows = {kind: window if kind == SLIDING else None for kind in sorted(kinds)}
    return Architecture(config.model_type, windows, longest_of(text))


def layer_kinds(config: Any) -> frozenset[str]:
    """The kinds of layers of a decoder's configuration, told as transformers' own caches do."""
    named = getattr(config, "layer_types", None)
    if named is not None:
        return frozenset(named)
    if getattr(config, "sliding_window", None) is not None and knows_windows(config):
        return frozenset({SLIDING})
    if getattr(config, "attention_chunk_size", None) is not None:
        return frozenset({"chunked_attention"})
    return frozenset({FULL})


def knows_windows(config: Any) -> bool:
    """Whether windows are part of this architecture, or a stray line of its config.json."""
    return hasattr(type(config), "sliding_window")


def why_not(config: Any, kinds: frozenset[str]) -> str | None:
    """Why a model of this configuration cannot be a target; None: it can."""
    if getattr(config, "is_encoder_decoder", False):
        return "is an encoder-decoder: wanted a decoder-only language model"
    text = config.get_text_config(decoder=True)
    if config.model_type not in SERVED:
        from transformers import MODEL_FOR_CAUSAL_LM_MAPPING as CAUSAL

        model: Any = CAUSAL.get(type(config), None)
        if isinstance(model, tuple):
            model = model[0]
        if getattr(model, "_is_stateful", False):
            return (
                "keeps a recurrent state beside or instead of keys and values: a rejected draft "
                "cannot be taken out of it again, so it cannot be decoded speculatively"
            )
    if "chunked_attention" in kinds:
        return (
            "attends in chunks of positions (chunked_attention): Paceline serves full and sliding "
            "attention"
        )
    unknown = sorted(kinds - {FULL, SLIDING})
    if unknown:
        return (
            f"has layers of the kind {', '.join(unknown)}, which keep more than keys and values or "
            "share them: a rejected draft could not be rolled back; Paceline serves full and "
            "sliding attention"
        )
    if getattr(text, "use_bidirectional_attention", False):
        return "attends to later positions too (use_bidirectional_attention): it cannot decode"
    window = getattr(text, "sliding_window", None)
    if window is not None and not knows_windows(text) and window < text.max_position_embeddings:
        return (
            f"has no sliding windows, but sliding_window {window} in its config.json: transformers "
            "itself then attends to more than its cache keeps; take the line out"
        )
    if config.model_type not in SERVED:
        return (
            "has not been shown to decode here as it does in transformers: Paceline serves "
            f"{', '.join(sorted(SERVED))}"
        )
    return None


def longest_of(config: Any) -> int | None:
    """Positions a cache may hold where rotary frequencies depend on the longest of the batch.

    With 'dynamic' and 'longrope' scaling transformers changes the frequencies of every row once
    one position passes the original length, and keys cached before are of the other ones.
    """
    rope = getattr(config, "rope_parameters", None) or {}
    nested = [value for value in rope.values() if isinstance(value, dict)]
    for parameters in nested or [rope]:
        if parameters.get("rope_type") in ("dynamic", "longrope"):
            original = parameters.get("original_max_position_embeddings")
            return int(original or config.max_position_embeddings)
    return None


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
