"""Toy models made in the process: a tiny Llama with a real tokenizer, and drafts for it."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from speculation.head import Head, head_config, save_head
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
