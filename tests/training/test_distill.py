"""Distillation end to end on a toy target: it learns, it resumes, and it is wired as it serves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from speculation.drafters import load_drafter
from speculation.engine import Engine
from speculation.head import load_head
from speculation.records import Prompt
from speculation.sequence import Request
from speculation.target import load_target
from tests.toys import toy_target_folder
from training import distill as distillation
from training.distill import distill, validate
from training.recipe import Recipe
from training.regenerate import regenerate
from training.responses import read_responses, shards
from training.unrolled import collate, unrolled

RECIPE = Recipe(
    responses=120,
    max_tokens=24,
    max_prompt_tokens=60,
    draft_vocab=128,
    epochs=4,
    batch=16,
    unroll=3,
    learning_rate=5e-3,
)


def prompts(count: int) -> list[Prompt]:
    return [
        Prompt(f"p{i}", ({"role": "user", "content": f"the {i} fox jumps over {i * 7 % 13}"},))
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def target_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_target_folder(tmp_path_factory.mktemp("target"), seed=3, spread=0.15)


@pytest.fixture(scope="module")
def responses(target_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("responses")
    return regenerate(target_folder, prompts(120), out, recipe=RECIPE)


def test_a_killed_regeneration_goes_on_where_it_was(
    target_folder: Path, responses: Path, tmp_path: Path
) -> None:
    kept = shards(responses)[0]
    (tmp_path / kept.name).write_bytes(kept.read_bytes())
    seen: list[int] = []
    regenerate(
        target_folder,
        prompts(120),
        tmp_path,
        recipe=RECIPE,
        progress=lambda done, total, what: seen.append(done),
    )
    assert seen[0] == len({r.prompt_id for r in read_responses(tmp_path)}) - (len(seen) - 1)
    again = {r.prompt_id: r.ids.tolist() for r in read_responses(tmp_path)}
    assert again == {r.prompt_id: r.ids.tolist() for r in read_responses(responses)}


def test_stored_probabilities_are_the_targets_own(target_folder: Path, responses: Path) -> None:
    response = next(iter(read_responses(responses)))
    model = load_target(target_folder).model
    with torch.no_grad():
        logits = model(response.ids[None].long()).logits[0].float()
    probs = logits.softmax(-1)[response.prompt_len - 1 : -1]
    stored = torch.zeros_like(probs).scatter_(
        1, response.top_ids.long(), response.top_probs.float()
    )
    kept = stored > 0
    # bfloat16 keeps 8 bits of a probability
    torch.testing.assert_close(stored[kept], probs[kept], rtol=2**-7, atol=1e-5)


def test_training_raises_acceptance(target_folder: Path, responses: Path, tmp_path: Path) -> None:
    distill(target_folder, responses, tmp_path, recipe=RECIPE)
    curves = json.loads((tmp_path / "curves.json").read_text())
    assert max(c["validation_acceptance"] for c in curves) > 0.3
    assert curves[-1]["loss"] < curves[0]["loss"]


def test_serving_accepts_exactly_what_training_says_it_will(
    target_folder: Path, responses: Path, tmp_path: Path
) -> None:
    """Every place of every answer starts a round, in the training code and in the engine.

    A head that is wired differently in the two (a position, a state, a mask) would show here.
    """
    draft = distill(target_folder, responses, tmp_path, recipe=replace(RECIPE, epochs=2))
    target = load_target(target_folder)
    drafted = RECIPE.unroll
    head = load_head(draft, dtype=torch.float32, device=torch.device("cpu"))
    some = [r for r in read_responses(responses) if r.answer_len > drafted][:12]
    with torch.no_grad():
        batch = collate(some, torch.ones(head.fc.in_features))
        told = unrolled(head, target.embedding, batch, positions=drafted, decay=1.0)

    drafter = load_drafter(draft, target, rows=8, max_len=128)
    engine = Engine(target, {"head": drafter}, default="head", slots=8, max_len=128)
    lens: dict[str, int] = {}
    for response in some:
        for start in range(response.answer_len - 1):
            lens[name := f"{response.prompt_id}/{start}"] = min(
                drafted, response.answer_len - 1 - start
            )
            prompt = tuple(response.ids[: response.prompt_len + start].tolist())
            engine.submit(Request(name, prompt, lens[name] + 2, draft_len=lens[name]))
    blocks: dict[str, list[int]] = {name: [] for name in lens}
    while not engine.idle:
        for event in engine.step():
            blocks[event.id].append(len(event.token_ids))
    judged, accepted = [0] * drafted, [0] * drafted
    for name, sizes in blocks.items():  # the first is prefill's, the second the round's
        for position in range(min(sizes[1], lens[name])):
            judged[position] += 1
            accepted[position] += position < sizes[1] - 1
    assert (judged, accepted) == (told.judged, told.accepted)
    assert min(judged) > 20


def test_a_killed_distillation_goes_on_from_its_checkpoint(
    target_folder: Path, responses: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = replace(RECIPE, epochs=3)
    whole = distill(target_folder, responses, tmp_path / "whole", recipe=short)
    epochs = 0

    def killed(*arguments: object, **options: object) -> tuple[list[int], list[int]]:
        nonlocal epochs
        epochs += 1
        if epochs == 3:
            raise KeyboardInterrupt
        return validate(*arguments, **options)  # type: ignore[arg-type]  # passed through

    monkeypatch.setattr(distillation, "validate", killed)
    with pytest.raises(KeyboardInterrupt):
        distill(target_folder, responses, tmp_path / "cut", recipe=short)
    monkeypatch.undo()
    done: list[int] = []
    resumed = distill(
        target_folder,
        responses,
        tmp_path / "cut",
        recipe=short,
        progress=lambda d, t, w: done.append(d),
    )
    steps = done[-1] // 3
    assert done[0] == 2 * steps + 1, "two epochs were done before it was killed"
    first, second = (
        load_head(f, dtype=torch.float32, device=torch.device("cpu")) for f in (whole, resumed)
    )
    for name, weight in first.state_dict().items():
        torch.testing.assert_close(second.state_dict()[name], weight, msg=name)


def test_a_warm_start_beats_a_fresh_one_on_little_data(
    target_folder: Path, responses: Path, tmp_path: Path
) -> None:
    first = distill(target_folder, responses, tmp_path / "first", recipe=RECIPE)
    brief = replace(RECIPE, epochs=1, learning_rate=1e-3)
    distill(target_folder, responses, tmp_path / "fresh", recipe=brief)
    distill(target_folder, responses, tmp_path / "warm", recipe=brief, start=first)

    def reached(out: str) -> float:
        curve = json.loads((tmp_path / out / "curves.json").read_text())
        return float(curve[-1]["validation_acceptance"])

    assert reached("warm") > reached("fresh")
