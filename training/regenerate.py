"""The target answers the training prompts itself: a draft learns from what the target really says.

Answers are decoded by the engine that serves, and its hidden states and probabilities are kept on
the way, so that nothing is computed twice. Resumable: complete shards are not made again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from speculation.drafters import NoDrafter
from speculation.engine import Engine
from speculation.records import Prompt
from speculation.sequence import Request
from speculation.target import Target, feature_layers, load_target
from training.progress import Progress, silent
from training.recipe import Recipe
from training.responses import Response, read_shard, shards, write_shard

SHARD = 32  # responses
SLOTS = 32  # sequences decoded side by side: 12 % more answers a second than 16 on 2 CPU cores


class _Recorder:
    """Collects what the engine reports of each request until it is complete."""

    def __init__(self, kept_probs: int) -> None:
        self.kept_probs = kept_probs
        self.states: dict[str, list[Tensor]] = {}
        self.tops: dict[str, list[tuple[Tensor, Tensor]]] = {}

    def __call__(self, request_id: str, states: Tensor | None, logits: Tensor) -> None:
        assert states is not None
        self.states.setdefault(request_id, []).append(states.clone())
        probs = logits.float().softmax(dim=-1)
        top = probs.topk(min(self.kept_probs, probs.shape[-1]), dim=-1)
        kept = (top.indices.int(), top.values.bfloat16())
        self.tops.setdefault(request_id, []).append(kept)

    def take(self, prompt: tuple[int, ...], answer: list[int], request_id: str) -> Response:
        top_ids, top_probs = zip(*self.tops.pop(request_id), strict=True)
        ids = torch.tensor([*prompt, *answer], dtype=torch.int32)
        states = torch.cat(self.states.pop(request_id))[: len(ids) - 1]
        return Response(
            request_id,
            len(prompt),
            ids,
            states.cpu(),
            torch.cat(top_ids).cpu(),
            torch.cat(top_probs).cpu(),
        )


def regenerate(
    target_folder: Path,
    prompts: Sequence[Prompt],
    out: Path,
    *,
    recipe: Recipe,
    device: str = "cpu",
    adapters: Mapping[str, Path] | None = None,
    progress: Progress = silent,
) -> Path:
    """Have the target answer up to `recipe.responses` of `prompts`, greedily; returns `out`.

    A prompt for one of the LoRA `adapters` is answered with it, as it is when it is served.

    Prompts that are too long are passed over. Raises ModelFolderError, and ValueError when no
    prompt fits.
    """
    target = load_target(target_folder, device=device)
    for name, folder in (adapters or {}).items():
        target.load_adapter(name, folder)
    tokenizer = load_tokenizer(target_folder)
    chosen = encode(tokenizer, prompts, recipe)
    if not chosen:
        raise ValueError(
            f"none of {len(prompts)} prompts has at most {recipe.max_prompt_tokens} tokens: "
            "give shorter prompts, or raise max_prompt_tokens in the recipe"
        )
    out.mkdir(parents=True, exist_ok=True)
    done = {response.prompt_id for path in shards(out) for response in read_shard(path)}
    missing = [(key, ids) for key, ids in chosen if key not in done]
    progress(len(done), len(chosen), "responses")
    stops = stop_ids(target, tokenizer)
    named = {prompt.id: prompt.adapter for prompt in prompts}
    _answer(target, missing, named, stops, out, len(done), len(chosen), recipe, progress)
    return out


def load_tokenizer(target_folder: Path) -> PreTrainedTokenizerBase:
    """The target's tokenizer, from its folder alone."""
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
        target_folder, local_files_only=True
    )
    return tokenizer


def encode(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Prompt], recipe: Recipe
) -> list[tuple[str, tuple[int, ...]]]:
    """The first `recipe.responses` prompts that fit, as ids under the target's chat template.

    Equal prompts for one adapter are asked once: the answers would be equal too, and one of them
    could be learned from while the other chooses the checkpoint.
    """
    chosen: list[tuple[str, tuple[int, ...]]] = []
    asked: set[tuple[str | None, tuple[int, ...]]] = set()
    for prompt in prompts:
        if len(chosen) == recipe.responses:
            break
        encoded: Any = tokenizer.apply_chat_template(
            [dict(message) for message in prompt.messages], add_generation_prompt=True
        )
        ids = tuple(encoded["input_ids"])
        question = (prompt.adapter, ids)
        if len(ids) <= recipe.max_prompt_tokens and question not in asked:
            asked.add(question)
            chosen.append((prompt.id, ids))
    return chosen


def stop_ids(target: Target, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """The tokens that end an answer: the model's own defaults and the tokenizer's."""
    configured = getattr(target.model, "generation_config", None)
    eos = getattr(configured, "eos_token_id", None)
    found = eos if isinstance(eos, list) else [eos]
    return frozenset(i for i in (*found, tokenizer.eos_token_id) if isinstance(i, int))


def _answer(
    target: Target,
    prompts: list[tuple[str, tuple[int, ...]]],
    adapters: Mapping[str, str | None],  # of each prompt's id
    stop_ids: frozenset[int],
    out: Path,
    done: int,
    total: int,
    recipe: Recipe,
    progress: Progress,
) -> None:
    recorder = _Recorder(recipe.kept_probs)
    engine = Engine(
        target,
        {"none": NoDrafter()},
        default="none",
        slots=SLOTS,
        max_len=recipe.max_prompt_tokens + recipe.max_tokens,
        observer=recorder,
        observed=feature_layers(target.config.num_hidden_layers),
    )
    encoded = dict(prompts)
    answers: dict[str, list[int]] = {}
    finished: list[Response] = []
    number = 1 + max((int(path.stem.split("-")[1]) for path in shards(out)), default=-1)
    for key, ids in prompts:
        adapter = adapters[key]
        engine.submit(Request(key, ids, recipe.max_tokens, stop_ids=stop_ids, adapter=adapter))
    while not engine.idle:
        for event in engine.step():
            answers.setdefault(event.id, []).extend(event.token_ids)
            if event.outcome is None:
                continue
            finished.append(recorder.take(encoded[event.id], answers.pop(event.id), event.id))
            done += 1
            progress(done, total, "responses")
        if len(finished) >= SHARD or (engine.idle and finished):
            write_shard(out / f"shard-{number:05d}.safetensors", finished)
            number, finished = number + 1, []
