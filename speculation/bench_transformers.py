"""The same prompts decoded by transformers' `generate`, plainly and assisted, to be timed beside.

Knows transformers and token ids. Its batches are fixed: all rows wait for the longest, and the next
prompts for all of them. Assisted generation takes one prompt at a time and no head: of prompts that
are asked side by side the others wait their turn, which is part of their latency.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, GenerationConfig, StoppingCriteria

from speculation.bench import Key, Prompt, Run, Way
from speculation.head import ARCHITECTURE
from speculation.target import Target, read_config

TRANSFORMERS = "transformers"
ASSISTED = "transformers + "  # and the draft that assists


class _Noting(StoppingCriteria):
    """Notes when the first token was there; stops nothing."""

    def __init__(self) -> None:
        self.first: float | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor, **more: Any) -> Tensor:
        if self.first is None:
            self.first = time.perf_counter()
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


def transformers_ways(
    folder: Path,
    target: Target,  # what the folder holds, for its dtype and device
    drafts: Mapping[str, str],  # a name's folder, or "ngram"
    prompts: Sequence[Prompt],
    *,
    draft_lens: Sequence[int],
    max_tokens: int,
    concurrency: int,
    stop_ids: frozenset[int],
) -> dict[Key, Way]:
    """What can be timed beside ours, by name and K. Loads the target once more, and the drafts."""
    model = _load(folder, target)
    decode = partial(_generate, model, prompts, max_tokens, concurrency, stop_ids)
    ways: dict[Key, Way] = {(TRANSFORMERS, 0): partial(decode, concurrency, {})}
    for name, draft in drafts.items():
        assistant = None
        if draft != "ngram":
            if read_config(Path(draft)).get("architectures") == [ARCHITECTURE]:
                continue
            assistant = _load(Path(draft), target)
        for draft_len in draft_lens:
            given: dict[str, Any] = {"prompt_lookup_num_tokens": draft_len}
            if assistant is not None:
                given = {"assistant_model": assistant, "draft_len": draft_len}
            ways[ASSISTED + name, draft_len] = partial(decode, 1, given)
    return ways


def _load(folder: Path, target: Target) -> Any:
    model: Any = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=target.dtype,
        local_files_only=True,
        use_safetensors=True,
        trust_remote_code=False,
    )
    return model.to(target.device).eval()


@torch.inference_mode()
def _generate(
    model: Any,
    prompts: Sequence[Prompt],
    max_tokens: int,
    concurrency: int,
    stop_ids: frozenset[int],
    together: int,  # prompts in a batch
    given: Mapping[str, Any],
) -> Run:
    more = dict(given)
    if (draft_len := more.pop("draft_len", None)) is not None:
        more["assistant_model"].generation_config = GenerationConfig(
            num_assistant_tokens=draft_len,
            num_assistant_tokens_schedule="constant",
            assistant_confidence_threshold=0.0,
            do_sample=False,
        )
    model.generation_config = GenerationConfig(
        do_sample=False,
        max_new_tokens=max_tokens,
        eos_token_id=sorted(stop_ids) or None,
        pad_token_id=min(stop_ids, default=0),
    )
    latencies, first_tokens, emitted = list[float](), list[float](), 0
    began = asked = time.perf_counter()
    for start in range(0, len(prompts), together):
        if start % concurrency == 0:
            asked = time.perf_counter()  # as many as are side by side, at once
        batch = prompts[start : start + together]
        width = max(map(len, batch))
        ids = torch.tensor([[0] * (width - len(one)) + list(one) for one in batch])
        mask = torch.tensor([[0] * (width - len(one)) + [1] * len(one) for one in batch])
        noting = _Noting()
        found = model.generate(
            ids.to(model.device),
            attention_mask=mask.to(model.device),
            stopping_criteria=[noting],
            **more,
        )[:, width:].tolist()
        done = time.perf_counter()
        latencies += [done - asked] * len(batch)
        first_tokens += [(noting.first or done) - asked] * len(batch)
        emitted += sum(_answer_length(row, stop_ids) for row in found)
    return Run(time.perf_counter() - began, emitted, tuple(latencies), tuple(first_tokens))


def _answer_length(row: Sequence[int], stop_ids: frozenset[int]) -> int:
    """Tokens up to the end, which counts; what follows is padding."""
    return next((place + 1 for place, token in enumerate(row) if token in stop_ids), len(row))
