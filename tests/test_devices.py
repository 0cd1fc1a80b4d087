"""What has to hold on every device; `make gpu-check` runs these on CUDA, `make test` on CPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from speculation.drafters import load_drafter
from speculation.engine import Engine
from speculation.records import Counts, Prompt, pool
from speculation.sampling import Sampling
from speculation.sequence import Request
from speculation.target import load_target
from tests.toys import toy_draft_folder, toy_target_folder

PROMPTS = [tuple(range(4 + 3 * n, 12 + 7 * n)) for n in range(5)]  # of five lengths
TOKENS = 24
ROWS, MAX_LEN = 3, 96


def decoded(engine: Engine, requests: Sequence[Request]) -> tuple[dict[str, list[int]], Counts]:
    """What each request got, and what it took together."""
    for request in requests:
        engine.submit(request)
    tokens: dict[str, list[int]] = {request.id: [] for request in requests}
    counts = []
    while not engine.idle:
        for event in engine.step():
            tokens[event.id].extend(event.token_ids)
            if event.counts is not None:
                counts.append(event.counts)
    return tokens, pool(counts)


@pytest.mark.parametrize("kind", ["none", "ngram", "head"])
@pytest.mark.parametrize("draft_len", [1, 5])
def test_greedy_output_is_the_targets_own(
    device: str, kind: str, draft_len: int, tmp_path: Path
) -> None:
    folder = toy_target_folder(tmp_path / "target")
    draft = str(toy_draft_folder(folder, tmp_path / "draft")) if kind == "head" else kind
    model = AutoModelForCausalLM.from_pretrained(folder)
    torch.nn.Module.to(model, torch.device(device))  # transformers' own decorator hides types
    wanted = {}
    for number, prompt in enumerate(PROMPTS):
        out = model.generate(
            torch.tensor([prompt], device=device),
            attention_mask=torch.ones(1, len(prompt), device=device),
            max_new_tokens=TOKENS,
            do_sample=False,
            eos_token_id=None,
        )
        wanted[str(number)] = out[0, len(prompt) :].tolist()
    target = load_target(folder, dtype="float32", device=device)
    drafter = load_drafter(draft, target, rows=ROWS, max_len=MAX_LEN)
    engine = Engine(
        target, {"x": drafter}, default="x", draft_len=draft_len, slots=ROWS, max_len=MAX_LEN
    )
    tokens, counts = decoded(engine, [Request(str(n), p, TOKENS) for n, p in enumerate(PROMPTS)])
    assert tokens == wanted
    assert (counts.judged > 0) == (kind != "none")


def test_a_seed_gives_the_same_output_again(device: str, tmp_path: Path) -> None:
    folder = toy_target_folder(tmp_path / "target")
    draft = toy_draft_folder(folder, tmp_path / "draft")
    target = load_target(folder, dtype="float32", device=device)
    drafter = load_drafter(draft, target, rows=ROWS, max_len=MAX_LEN)
    engine = Engine(target, {"x": drafter}, default="x", slots=ROWS, max_len=MAX_LEN)

    def drawn(name: str, seed: int) -> dict[str, list[int]]:
        asked = Sampling(temperature=1.0, seed=seed)
        tokens, _ = decoded(engine, [Request(name, PROMPTS[0], TOKENS, sampling=asked)])
        return tokens

    assert list(drawn("a", 1).values()) == list(drawn("b", 1).values())
    assert list(drawn("c", 1).values()) != list(drawn("d", 2).values())


@pytest.mark.parametrize("more", [{}, {"top_p": 0.9, "presence_penalty": 0.5, "min_tokens": 4}])
def test_a_seeds_output_depends_on_neither_draft_nor_k_nor_batch(
    device: str, tmp_path: Path, more: dict[str, float]
) -> None:
    folder = toy_target_folder(tmp_path / "target")
    draft = toy_draft_folder(folder, tmp_path / "draft")
    target = load_target(folder, dtype="float32", device=device)

    def drawn(kind: str | Path, draft_len: int, slots: int) -> tuple[dict[str, list[int]], Counts]:
        drafter = load_drafter(kind, target, rows=slots, max_len=MAX_LEN)
        engine = Engine(
            target, {"x": drafter}, default="x", draft_len=draft_len, slots=slots, max_len=MAX_LEN
        )
        asked = [
            Request(
                str(n),
                prompt,
                TOKENS,
                sampling=Sampling(temperature=0.8, seed=n, **more),  # type: ignore[arg-type]  # floats and ints by name
                stop_ids=frozenset({5}),
            )
            for n, prompt in enumerate(PROMPTS)
        ]
        return decoded(engine, asked)

    plain, _ = drawn("none", 0, 1)
    for kind, draft_len, slots in ((draft, 1, 1), (draft, 7, 3), ("ngram", 4, 2), (folder, 4, 3)):
        found, counts = drawn(kind, draft_len, slots)
        assert found == plain
        if kind == folder:  # the target drafts for itself, with the same noise: all is kept
            assert counts.acceptance == 1.0


def test_a_head_learns_where_it_is_trained(device: str, tmp_path: Path) -> None:
    if device == "cpu":
        pytest.skip("tests/training proves the same and more on CPU")
    from training.distill import distill
    from training.recipe import Recipe
    from training.regenerate import regenerate

    recipe = Recipe(
        **{"responses": 120, "max_tokens": 24, "max_prompt_tokens": 60, "draft_vocab": 128},
        **{"epochs": 4, "batch": 16, "unroll": 3},
        learning_rate=5e-3,
    )
    folder = toy_target_folder(tmp_path / "target", seed=3, spread=0.15)
    asked = [
        Prompt(f"{n}", ({"role": "user", "content": f"the {n} fox jumps over {n * 7 % 13}"},))
        for n in range(120)
    ]
    answers = regenerate(folder, asked, tmp_path / "answers", recipe=recipe, device=device)
    draft = distill(folder, answers, tmp_path / "out", recipe=recipe, device=device)
    target = load_target(folder, device=device)
    drafter = load_drafter(str(draft), target, rows=ROWS, max_len=MAX_LEN)
    engine = Engine(target, {"x": drafter}, default="x", draft_len=1, slots=ROWS, max_len=MAX_LEN)
    _, counts = decoded(engine, [Request(str(n), p, TOKENS) for n, p in enumerate(PROMPTS)])
    assert counts.acceptance is not None
    assert counts.acceptance > 0.3  # an untrained head is kept less than one time in a hundred
