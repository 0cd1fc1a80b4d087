"""What has to hold on every device; `make gpu-check` runs these on CUDA, `make test` on CPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from speculation.drafters import load_drafter
from speculation.engine import Engine
from speculation.records import Prompt
from speculation.sampling import Sampling
from speculation.sequence import Request
from speculation.target import Target, load_target
from tests.toys import (
    Told,
    counts_of,
    events_of,
    generated,
    parting_gaps,
    tokens_of,
    toy_draft_folder,
    toy_target_folder,
)

PROMPTS = [tuple(range(4 + 3 * n, 12 + 7 * n)) for n in range(5)]  # of five lengths
TOKENS = 24
ROWS, MAX_LEN = 4, 96
CLOSE = 0.1  # nats: a few of bfloat16's steps at the size of these logits


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_target_folder(tmp_path_factory.mktemp("toys") / "target")


@pytest.fixture(scope="module")
def draft(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_draft_folder(folder, tmp_path_factory.mktemp("toys") / "draft")


DRAFTS = ("none", "ngram", "head", "model")  # the last is the target, drafting for itself
CHOICES = [("none", 0), ("ngram", 4), ("head", 1), ("head", 5), ("model", 1), ("model", 5)]


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def engine_of(target: Target, folder: Path, draft: Path, *, slots: int) -> Engine:
    """With every kind of drafter."""
    places = {"head": draft, "model": folder}
    drafters = {
        kind: load_drafter(places.get(kind, kind), target, rows=slots, max_len=MAX_LEN)
        for kind in DRAFTS
    }
    return Engine(target, drafters, default="none", slots=slots, max_len=MAX_LEN)


def plainly(engine: Engine, **more: Any) -> Told:
    """What each prompt gets alone and undrafted."""
    return events_of(
        engine,
        [Request(str(n), p, TOKENS, drafter="none", **more) for n, p in enumerate(PROMPTS)],
    )


def drafted(engine: Engine, sampling: Sequence[Sampling]) -> dict[tuple[str, int], Told]:
    """What each prompt gets with each of `CHOICES`, all side by side."""
    told = events_of(
        engine,
        [
            Request(f"{kind}/{length}/{n}", p, TOKENS, s, drafter=kind, draft_len=length)
            for kind, length in CHOICES
            for n, (p, s) in enumerate(zip(PROMPTS, sampling, strict=True))
        ],
    )
    return {
        (kind, length): {str(n): told[f"{kind}/{length}/{n}"] for n in range(len(PROMPTS))}
        for kind, length in CHOICES
    }


GREEDY = [Sampling()] * len(PROMPTS)


def test_float32_greedy_output_is_the_targets_own(device: str, folder: Path, draft: Path) -> None:
    target = load_target(folder, dtype="float32", device=device)
    wanted = generated(folder, PROMPTS, TOKENS, device=device)
    for (kind, length), told in drafted(
        engine_of(target, folder, draft, slots=ROWS), GREEDY
    ).items():
        assert tokens_of(told) == wanted, (kind, length)
        assert (counts_of(told).judged > 0) == (kind != "none")
        if kind == "model":
            assert counts_of(told).acceptance == 1.0


def test_bfloat16_parts_only_where_plain_decoding_hardly_preferred_its_token(
    device: str, folder: Path, draft: Path
) -> None:
    """Equality is not promised: sums in another order round to another of bfloat16's few values."""
    target = load_target(folder, dtype="bfloat16", device=device)
    plain = plainly(engine_of(target, folder, draft, slots=1), logprobs=2)
    for (kind, length), told in drafted(
        engine_of(target, folder, draft, slots=ROWS), GREEDY
    ).items():
        gaps = parting_gaps(plain, told)
        print(f"{device} {kind} {length}: {len(PROMPTS) - len(gaps)} of {len(PROMPTS)}, {gaps}")
        assert all(gap < CLOSE for gap in gaps.values())
        assert (counts_of(told).judged > 0) == (kind != "none")
        if kind == "model":
            assert (counts_of(told).acceptance or 0.0) > 0.9


def test_a_seed_gives_the_same_output_again(
    device: str, dtype: str, folder: Path, draft: Path
) -> None:
    target = load_target(folder, dtype=dtype, device=device)
    engine = engine_of(target, folder, draft, slots=ROWS)

    def drawn(seed: int) -> list[int]:
        sampling = Sampling(temperature=1.0, seed=seed)
        request = Request("0", PROMPTS[0], TOKENS, sampling, drafter="head")
        return tokens_of(events_of(engine, [request]))["0"]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_a_seeds_output_depends_on_neither_draft_nor_k_nor_batch(
    device: str, folder: Path, draft: Path
) -> None:
    target = load_target(folder, dtype="float32", device=device)
    more: list[dict[str, Any]] = [{}, {"top_p": 0.9, "presence_penalty": 0.5, "min_tokens": 4}]
    sampling = [Sampling(temperature=0.8, seed=n, **more[n % 2]) for n in range(len(PROMPTS))]
    alone = engine_of(target, folder, draft, slots=1)
    requests = [
        Request(str(n), p, TOKENS, s)
        for n, (p, s) in enumerate(zip(PROMPTS, sampling, strict=True))
    ]
    plain = tokens_of(events_of(alone, requests))
    for (kind, length), told in drafted(
        engine_of(target, folder, draft, slots=ROWS), sampling
    ).items():
        assert tokens_of(told) == plain, (kind, length)
        if kind == "model":  # with the same noise all is kept
            assert counts_of(told).acceptance == 1.0


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
    prompts = [
        Prompt(f"{n}", ({"role": "user", "content": f"the {n} fox jumps over {n * 7 % 13}"},))
        for n in range(120)
    ]
    answers = regenerate(folder, prompts, tmp_path / "answers", recipe=recipe, device=device)
    trained = distill(folder, answers, tmp_path / "out", recipe=recipe, device=device)
    target = load_target(folder, device=device)
    told = drafted(engine_of(target, folder, trained, slots=ROWS), GREEDY)["head", 1]
    counts = counts_of(told)
    assert counts.acceptance is not None
    assert counts.acceptance > 0.3  # an untrained head is kept less than one time in a hundred
