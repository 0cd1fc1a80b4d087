"""A served model whose K adapts is as fast as plain decoding where its draft pays nothing."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from evaluation.statistics import ratio_of_ratios
from tests.serving.children import child
from training.corpus import documented, standard_library
from training.smollm2 import unpack

HEAD = Path(__file__).parents[2] / "examples" / "docstrings" / "draft"
REQUESTS, BLOCK = 208, 8  # of each way; asked in a row or at once
LEARNING = 100  # target forwards, of all requests, after which a new pair's K has to be right
LAYERS = 6  # of the target's 30, as a small model that drafts: cheap, and hardly ever right
TOKENS = 32
MARGIN = 0.97  # what measuring may take of the speed


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("models") / "smollm2")


@pytest.fixture(scope="module")
def cut(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small causal model with the target's tokens: its first layers."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tmp_path_factory.mktemp("models") / "cut"
    small = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16)
    small.model.layers = small.model.layers[:LAYERS]
    small.config.num_hidden_layers = LAYERS
    small.save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)
    return folder


def prompts(draft: str) -> list[str]:
    """Words in no order for prompt lookup, which finds nothing there; real ones for the others."""
    chance = random.Random(7)
    held_out = [entry for entry in documented(standard_library()) if entry.held_out]
    texts = [entry.prompt for entry in held_out if len(entry.prompt) < 600]
    chance.shuffle(texts)
    if draft != "ngram":
        return texts[:BLOCK]
    words = sorted({word for text in texts for word in text.split() if word.isalpha()})
    return [" ".join(chance.sample(words, 40)) for _ in range(BLOCK)]


@pytest.mark.soak
@pytest.mark.parametrize("at_once", [1, BLOCK])
@pytest.mark.parametrize("draft", ["ngram", "head", "model"])
def test_a_k_that_adapts_costs_no_speed(
    model: Path, cut: Path, tmp_path: Path, draft: str, at_once: int
) -> None:
    ways: dict[str, dict[str, Any]] = {
        "adapted": {"drafter": draft, "draft_len": None},
        "plain": {"drafter": "none"},
    }
    found: dict[str, tuple[list[int], list[float]]] = {name: ([], []) for name in ways}
    asked = prompts(draft)
    named = {"head": str(HEAD), "model": str(cut)}.get(draft, draft)
    with (
        child(model, tmp_path, draft=named, max_slots=BLOCK) as served,
        httpx.Client(base_url=served.url, timeout=120, trust_env=False) as client,
        ThreadPoolExecutor(at_once) as clients,
    ):

        def answered(prompt: str, tokens: int) -> dict[str, Any]:
            # All as long: a batch that thins out is slower a token, whatever is drafted.
            body = {"prompt": prompt, "max_tokens": tokens, "min_tokens": tokens}
            answer = client.post("/v1/completions", json=body).raise_for_status()
            usage: dict[str, Any] = answer.json()["usage"]
            return usage

        def ask(prompt: str) -> int:
            return int(answered(prompt, TOKENS)["completion_tokens"])

        client.patch("/admin/pair", json=ways["adapted"]).raise_for_status()
        first = clients.map(lambda prompt: answered(prompt, LEARNING // at_once), asked[:at_once])
        spent = [usage["paceline"] for usage in first]
        learned = sum(each["rounds"] + each["plain_forwards"] for each in spent)
        assert learned <= LEARNING
        for block in range(REQUESTS // BLOCK):
            for name in sorted(ways, reverse=block % 2 == 1):  # neither is always first
                client.patch("/admin/pair", json=ways[name]).raise_for_status()
                begun = time.perf_counter()
                tokens = sum(clients.map(ask, asked))
                found[name][0].append(tokens)
                found[name][1].append(time.perf_counter() - begun)
    speed = ratio_of_ratios(*found["adapted"], *found["plain"], alpha=0.05)
    assert speed is not None
    print(
        f"{draft}, {at_once} at once: {speed.estimate:.3f} ({speed.low:.3f} to "
        f"{speed.high:.3f}) of plain's speed, after {learned} forwards of learning"
    )
    assert speed.high >= MARGIN
