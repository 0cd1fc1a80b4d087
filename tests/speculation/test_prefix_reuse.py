"""A prompt that begins as an earlier one did is answered as if it had been read in full."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from speculation.drafters import NoDrafter, load_drafter
from speculation.engine import Engine
from speculation.prefixes import BLOCK
from speculation.sequence import Event, Request
from speculation.target import Target, load_target
from tests.toys import decode, toy_adapter_folder

TOKENS = 24


def prompts() -> list[tuple[int, ...]]:
    generator = torch.Generator().manual_seed(1)
    start = torch.randint(4, 290, (2 * BLOCK + 5,), generator=generator).tolist()
    ends = [torch.randint(4, 290, (n,), generator=generator).tolist() for n in (7, 20, 3)]
    return [tuple(start + end) for end in ends] + [tuple(start), tuple(start)]


def answers(target: Target, draft: Path | str, capacity: int) -> dict[str, tuple[list[int], Event]]:
    drafter = load_drafter(draft, target, rows=2, max_len=160)
    engine = Engine(
        target, {"x": drafter}, default="x", slots=2, max_len=160, prefix_tokens=capacity
    )
    found = {}
    for number, prompt in enumerate(prompts()):
        key = str(number)
        tokens, last = decode(engine, [Request(key, prompt, TOKENS)])  # one after another
        found[key] = (tokens[key], last[key])
    return found


@pytest.mark.parametrize("kind", ["none", "ngram", "head"])
def test_answers_and_counts_are_those_of_reading_it_all(
    folders: tuple[Path, Path], target: Target, kind: str
) -> None:
    draft = folders[1] if kind == "head" else kind
    whole, reused = answers(target, draft, 0), answers(target, draft, 10 * BLOCK)
    for key, (tokens, event) in whole.items():
        again, other = reused[key]
        assert again == tokens
        assert other.counts == event.counts
        assert event.cached == 0
    assert [reused[key][1].cached for key in sorted(reused)] == [0] + [2 * BLOCK] * 4


class Shown(NoDrafter):
    """Keeps the states that it is shown, as a head would."""

    feature_layers = (2,)

    def __init__(self) -> None:
        self.states: list[Tensor] = []

    def observe(self, row: int, start: int, features: Tensor | None) -> None:
        assert features is not None
        assert start == sum(map(len, self.states))
        self.states.append(features.clone())


def test_a_draft_is_shown_the_states_that_belong_to_the_tokens_it_did_not_see_read(
    target: Target,
) -> None:
    """The untrained head above cannot tell: none of its tokens is ever kept."""
    shown = {}
    for capacity in (0, 10 * BLOCK):
        drafter = Shown()
        engine = Engine(
            target, {"x": drafter}, default="x", slots=1, max_len=160, prefix_tokens=capacity
        )
        for number, prompt in enumerate(prompts()[:2]):
            drafter.states = []
            _, last = decode(engine, [Request(str(number), prompt, 2)])
        assert last["1"].cached == (2 * BLOCK if capacity else 0)
        shown[capacity] = torch.cat(drafter.states)
    assert len(shown[0]) >= len(prompts()[1])
    # float32 sums in another order
    torch.testing.assert_close(shown[10 * BLOCK], shown[0], atol=1e-4, rtol=1e-4)


def test_a_store_too_small_for_a_block_reuses_nothing(
    folders: tuple[Path, Path], target: Target
) -> None:
    assert all(event.cached == 0 for _, event in answers(target, "none", BLOCK - 1).values())


def test_a_prompt_tells_nothing_of_what_another_scope_has_asked(
    folders: tuple[Path, Path], target: Target
) -> None:
    engine = Engine(
        target, {"x": NoDrafter()}, default="x", slots=2, max_len=160, prefix_tokens=10 * BLOCK
    )
    cached = []
    for number, scope in enumerate(("ours", "theirs", "ours", "theirs")):
        engine.submit(Request(str(number), prompts()[0], TOKENS, scope=scope))
        events = [event for _ in iter(lambda: engine.idle, True) for event in engine.step()]
        cached.append(events[-1].cached)
    assert cached == [0, 0, 2 * BLOCK, 2 * BLOCK]


def test_an_adapter_that_was_replaced_shares_no_beginning_with_its_successor(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    target = load_target(folders[0])
    for seed in (1, 2):
        toy_adapter_folder(
            folders[0], tmp_path / str(seed), seed=seed, target_modules=["q_proj", "down_proj"]
        )
    engine = Engine(
        target, {"x": NoDrafter()}, default="x", slots=2, max_len=160, prefix_tokens=10 * BLOCK
    )
    prompt = prompts()[0]

    def answer(key: str) -> tuple[list[int], int]:
        engine.submit(Request(key, prompt, TOKENS, adapter="a"))
        if key == "busy":
            with pytest.raises(ValueError, match="used by 1"):
                engine.unload_adapter("a")
        events = [event for _ in iter(lambda: engine.idle, True) for event in engine.step()]
        return [token for event in events for token in event.token_ids], events[-1].cached

    engine.load_adapter("a", tmp_path / "1")
    first = answer("busy")
    assert answer("again") == (first[0], 2 * BLOCK)
    engine.unload_adapter("a")
    engine.load_adapter("a", tmp_path / "2")
    other = answer("other")
    assert other[1] == 0
    assert other[0] != first[0]
