"""Make release 2 of the demo's target: a LoRA adapter that writes docstrings as Python's own.

    python examples/docstrings/finetune.py --target SMOLLM2_FOLDER --out ADAPTER_FOLDER

Trains on the functions and classes of the standard library that the demo never asks about (four
in five, by the hash of their names), on docstrings of 40 to 200 tokens.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoTokenizer

from training.corpus import apart, documented, standard_library

IGNORED = -100  # the label that torch's cross entropy passes over


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, required=True, help="folder of the base model")
    parser.add_argument("--out", type=Path, required=True, help="folder for the adapter")
    parser.add_argument("--name", help="what the adapter calls its base; left out, the folder's")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=4e-4)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    torch.manual_seed(arguments.seed)
    shuffler = random.Random(arguments.seed)
    tokenizer = AutoTokenizer.from_pretrained(arguments.target)
    examples: list[tuple[list[int], list[int]]] = []
    for entry in apart(documented(standard_library()))[0]:
        answer = tokenizer(entry.docstring, add_special_tokens=False).input_ids
        if not 40 <= len(answer) <= 200:
            continue
        message = [{"role": "user", "content": entry.prompt}]
        encoded: Any = tokenizer.apply_chat_template(message, add_generation_prompt=True)
        prompt = encoded["input_ids"]
        if len(prompt) <= 240:
            examples.append((prompt, [*answer, tokenizer.eos_token_id]))
    if not examples:
        parser.error("no docstring of the standard library has 40 to 200 tokens of this tokenizer")
    print(f"{len(examples)} examples, {arguments.steps} steps of {arguments.batch}")

    target = AutoModelForCausalLM.from_pretrained(arguments.target, dtype=torch.bfloat16)
    adapted = get_peft_model(
        target,
        LoraConfig(
            r=16,
            lora_alpha=32,
            target_modules="all-linear",  # all but the output layer
            task_type="CAUSAL_LM",
        ),
    )
    weights = [weight for weight in adapted.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=arguments.learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, arguments.learning_rate, total_steps=arguments.steps, pct_start=0.1
    )
    queue: list[tuple[list[int], list[int]]] = []
    started = time.monotonic()
    for step in range(arguments.steps):
        if len(queue) < arguments.batch:
            queue = shuffler.sample(examples, len(examples))
        batch, queue = queue[: arguments.batch], queue[arguments.batch :]
        width = max(len(prompt) + len(answer) for prompt, answer in batch)
        ids = torch.full((len(batch), width), tokenizer.eos_token_id)  # masked where nothing is
        labels = torch.full((len(batch), width), IGNORED)
        mask = torch.zeros((len(batch), width), dtype=torch.long)
        for row, (prompt, answer) in enumerate(batch):
            end = len(prompt) + len(answer)
            ids[row, :end] = torch.tensor(prompt + answer)
            labels[row, len(prompt) : end] = torch.tensor(answer)
            mask[row, :end] = 1
        # Logits of the answers alone: over the whole vocabulary they are most of the memory.
        causal: Any = adapted.base_model.model
        hidden = causal.base_model(input_ids=ids, attention_mask=mask).last_hidden_state
        learned = labels[:, 1:] != IGNORED
        logits = causal.get_output_embeddings()(hidden[:, :-1][learned])
        loss = functional.cross_entropy(logits.float(), labels[:, 1:][learned])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 10 == 9:
            left = (time.monotonic() - started) / (step + 1) * (arguments.steps - step - 1)
            print(f"step {step + 1}: loss {loss.item():.3f}, {left:.0f} s left", flush=True)

    for weight in adapted.parameters():
        if weight.requires_grad:
            weight.data = weight.data.to(torch.bfloat16)  # halves the file; merging is bf16 anyway
    adapted.peft_config["default"].base_model_name_or_path = (
        arguments.name or arguments.target.resolve().name
    )
    # Asked whether the vocabulary grew, peft would look for the base model on the hub.
    adapted.save_pretrained(arguments.out, safe_serialization=True, save_embedding_layers=False)


if __name__ == "__main__":
    main()
