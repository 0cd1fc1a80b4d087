"""Model folders of a few kilobytes, written without torch: a target, heads and drafts for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

WORDS = ["<|end|>", "<|user|>", *"abcdefghijklmnopqrstuvwxyz", "th", "he", "in", "er"]
MERGES = [("t", "h"), ("h", "e"), ("i", "n"), ("e", "r")]
HIDDEN, LAYERS = 8, 6
TEMPLATE = "{% for m in messages %}{{ m.content }}<|end|>{% endfor %}"

Arrays = dict[str, np.ndarray[Any, Any]]


def arrays(seed: int = 0, *, vocabulary: int = len(WORDS)) -> Arrays:
    """The weights of the tiny target by name."""
    generator = np.random.default_rng(seed)

    def drawn(*shape: int) -> np.ndarray[Any, Any]:
        return generator.standard_normal(shape).astype(np.float32)

    layers = {f"model.layers.{n}.mlp.up_proj.weight": drawn(HIDDEN, HIDDEN) for n in range(LAYERS)}
    return {
        "model.embed_tokens.weight": drawn(vocabulary, HIDDEN),
        **layers,
        "model.norm.weight": drawn(HIDDEN).astype(np.float16),
    }


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2))


def write_tokenizer(folder: Path, words: list[str] | None = None) -> Tokenizer:
    words = WORDS if words is None else words
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.BPEDecoder()
    tokenizer.add_special_tokens(["<|end|>", "<|user|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(
        folder / "tokenizer_config.json", {"eos_token": "<|end|>", "chat_template": TEMPLATE}
    )
    return tokenizer


def target(folder: Path, *, seed: int = 0, weights: Arrays | None = None, **config: Any) -> Path:
    """A tiny target with tied embeddings, its tokenizer, chat template and generation defaults."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(arrays(seed) if weights is None else weights, folder / "model.safetensors")
    written: Mapping[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "vocab_size": len(WORDS),
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
        "eos_token_id": 0,
        "transformers_version": "5.24.0",
        **config,
    }
    write_json(folder / "config.json", written)
    write_json(folder / "generation_config.json", {"eos_token_id": 0, "temperature": 0.7})
    write_tokenizer(folder)
    return folder


def shard(folder: Path, weights: Arrays, parts: int) -> None:
    """Write the weights as `parts` files with an index, in the place of the single file."""
    (folder / "model.safetensors").unlink(missing_ok=True)
    names = list(weights)
    weight_map: dict[str, str] = {}
    for part in range(parts):
        file = f"model-{part + 1:05d}-of-{parts:05d}.safetensors"
        held = {name: weights[name] for name in names[part::parts]}
        if held:
            save_file(held, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(held, file)
    write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})


def head(
    folder: Path, *, seed: int = 0, token_ids: tuple[int, ...] = (0, 2, 3, 5, 8, 13), **config: Any
) -> Path:
    """A tiny EAGLE-3 head in the layout that vLLM loads, for the tiny target."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    table = np.array([token - row for row, token in enumerate(token_ids)], dtype=np.int64)
    held = np.isin(np.arange(len(WORDS)), token_ids)
    save_file(
        {
            "fc.weight": generator.standard_normal((HIDDEN, 3 * HIDDEN)).astype(np.float32),
            "lm_head.weight": generator.standard_normal((len(token_ids), HIDDEN)).astype(
                np.float32
            ),
            "d2t": table,
            "t2d": held,
        },
        folder / "model.safetensors",
    )
    write_json(
        folder / "config.json",
        {
            "architectures": ["LlamaForCausalLMEagle3"],
            "hidden_size": HIDDEN,
            "vocab_size": len(WORDS),
            "draft_vocab_size": len(token_ids),
            "eagle_aux_hidden_state_layer_ids": [2, 3, 5],
            "max_position_embeddings": 512,
            **config,
        },
    )
    return folder


def adapter(folder: Path, *, seed: int = 0, rank: int = 2, **config: Any) -> Path:
    """A tiny LoRA adapter in PEFT's layout."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    weights = generator.standard_normal((rank, HIDDEN)).astype(np.float32)
    save_file({"base_model.model.lora_A.weight": weights}, folder / "adapter_model.safetensors")
    written = {"peft_type": "LORA", "r": rank, "target_modules": ["q_proj", "v_proj"], **config}
    write_json(folder / "adapter_config.json", written)
    return folder


def lora(folder: Path, module: str, *, rows: int, rank: int = 2) -> Path:
    """A LoRA of one module, named as PEFT names it, with `rows` outputs of HIDDEN inputs."""
    folder.mkdir(parents=True, exist_ok=True)
    matrices = {"lora_A": np.ones((rank, HIDDEN)), "lora_B": np.ones((rows, rank))}
    tensors = {f"{module}.{side}.weight": m.astype(np.float32) for side, m in matrices.items()}
    save_file(tensors, folder / "adapter_model.safetensors")
    written = {"peft_type": "LORA", "r": rank, "target_modules": [module.rpartition(".")[2]]}
    write_json(folder / "adapter_config.json", written)
    return folder
