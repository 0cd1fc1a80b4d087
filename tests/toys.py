"""Toy models made in the process, a tiny Llama with a real tokenizer above all; how they decode."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from speculation.engine import Engine
from speculation.head import Head, head_config, save_head
from speculation.records import Counts, pool
from speculation.sequence import Event, Request
from speculation.target import Target, load_target

TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ["<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
TEXT = ["the quick brown fox jumps over the lazy dog, returns true if it is so, else false. " * 4]


def toy_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE of about 300 tokens with a chat template; `<|end|>` ends a turn."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|end|>"
    )
    wrapped.chat_template = TEMPLATE
    return wrapped


def toy_target_folder(
    folder: Path, *, seed: int = 0, layers: int = 4, hidden: int = 32, spread: float = 0.3
) -> Path:
    """A tiny random Llama with its tokenizer, float32, as a Hugging Face folder."""
    tokenizer = toy_tokenizer()
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=hidden // 4,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.eos_token_id,
        initializer_range=spread,  # wide, so that the outputs are not one token for ever
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def toy_target(folder: Path, *, seed: int = 0) -> Target:
    return load_target(toy_target_folder(folder, seed=seed), dtype="float32")


def toy_draft_folder(target_folder: Path, folder: Path, *, seed: int = 0) -> Path:
    """A random head for the toy target: it proposes nonsense, yet output must be the target's."""
    target = load_target(target_folder, dtype="float32")
    torch.manual_seed(seed)
    head = Head(head_config(target, draft_vocab=64))
    head.choose_tokens(torch.randperm(target.vocab_size)[:64].sort().values)
    save_head(head, folder)
    return folder


SLIDING = {"sliding_window": 8}
CAPPED = {"attn_logit_softcapping": 4.0, "final_logit_softcapping": 3.0}
MIXED = {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
VISION = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "image_size": 28}
# A name -> transformers' model_type and what it needs beside `toy_architecture_folder`'s own.
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "smollm2": ("llama", {"head_dim": None, "num_key_value_heads": None, "tied": True}),
    "mistral": ("mistral", {**SLIDING}),
    "qwen2": ("qwen2", {}),
    "qwen2 sliding": ("qwen2", {**SLIDING, "use_sliding_window": True, "max_window_layers": 1}),
    "qwen3": ("qwen3", {}),
    "qwen3 sliding": ("qwen3", {**SLIDING, **MIXED, "use_sliding_window": True}),
    "gemma2": ("gemma2", {**SLIDING, **CAPPED, **MIXED, "query_pre_attn_scalar": 8}),
    "gemma3": ("gemma3_text", {**SLIDING, **MIXED, "query_pre_attn_scalar": 8}),
    "gemma3 nested": ("gemma3", {**SLIDING, **MIXED, "query_pre_attn_scalar": 8}),
    "phi3": ("phi3", {"sliding_window": 16}),
    "smollm3": ("smollm3", {"no_rope_layer_interval": 2}),
    "smollm3 sliding": (
        "smollm3",
        {**SLIDING, "no_rope_layer_interval": 2, "use_sliding_window": True},
    ),
}


def toy_architecture_folder(folder: Path, model_type: str, /, seed: int = 0, **asked: Any) -> Path:
    """A random model of 3 layers of one of transformers' architectures, float32; no tokenizer."""
    options = {
        **{"vocab_size": 120, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3},
        **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8},
        **{"max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
        **{"initializer_range": 0.4, "tie_word_embeddings": asked.pop("tied", False)},
        **asked,
    }
    if model_type == "gemma3":
        vision = {**VISION, "num_attention_heads": 2, "patch_size": 14}
        options = {"text_config": options, "vision_config": vision, "mm_tokens_per_image": 4}
        options["tie_word_embeddings"] = False
    torch.manual_seed(seed)
    config = AutoConfig.for_model(model_type, **options)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 1:
                weight.add_(torch.randn_like(weight) * 0.5)  # norms that are left out are seen
            elif "embed" in name:
                weight.mul_(0.3)  # a model of what came before, not only of the last token
    model.save_pretrained(folder)
    return folder


def toy_adapter_folder(base: Path, folder: Path, *, seed: int = 0, **options: Any) -> Path:
    """A random LoRA adapter for the model in `base`, as peft stores it."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(seed)
    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32),
        LoraConfig(**{"init_lora_weights": False, "task_type": "CAUSAL_LM", **options}),
    )
    model.save_pretrained(str(folder))
    return folder


Told = dict[str, list[Event]]  # by request, all that it was told


def events_of(engine: Engine, requests: Sequence[Request]) -> Told:
    for request in requests:
        engine.submit(request)
    told: Told = {request.id: [] for request in requests}
    while not engine.idle:
        for event in engine.step():
            told[event.id].append(event)
    return told


def tokens_of(told: Told) -> dict[str, list[int]]:
    return {key: [t for event in events for t in event.token_ids] for key, events in told.items()}


def counts_of(told: Told) -> Counts:
    """Of all requests together."""
    return pool([counts for events in told.values() if (counts := events[-1].counts) is not None])


def decode(
    engine: Engine, requests: Sequence[Request]
) -> tuple[dict[str, list[int]], dict[str, Event]]:
    """By request, all tokens it got and its last event."""
    told = events_of(engine, requests)
    return tokens_of(told), {key: events[-1] for key, events in told.items()}


def parting_gaps(plain: Told, other: Told) -> dict[str, float]:
    """Of each request whose tokens differ, how many nats lay between plain decoding's two likeliest
    tokens where they first do. `plain` was asked for the two log-probabilities."""
    gaps = {}
    tokens, found = tokens_of(plain), tokens_of(other)
    for key, events in plain.items():
        pairs = zip(tokens[key], found[key], strict=True)
        place = next((n for n, (a, b) in enumerate(pairs) if a != b), None)
        if place is not None:
            (_, first), (_, second) = [each for e in events for each in e.logprobs][place].top[:2]
            gaps[key] = first - second
    return gaps


def generated(
    folder: Path, prompts: Sequence[tuple[int, ...]], tokens: int, *, device: str = "cpu"
) -> dict[str, list[int]]:
    """Transformers' own greedy decoding in float32, each prompt alone; by the prompt's number."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    torch.nn.Module.to(model, torch.device(device))  # transformers' own decorator hides types
    found = {}
    for number, prompt in enumerate(prompts):
        out = model.generate(
            torch.tensor([prompt], device=device),
            attention_mask=torch.ones(1, len(prompt), device=device),
            max_new_tokens=tokens,
            do_sample=False,
            eos_token_id=None,
        )
        found[str(number)] = out[0, len(prompt) :].tolist()
    return found
