"""Drafts that read different layers of one target, in one engine and in several."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from speculation.engine import Engine
from speculation.proposal import NoDrafter
from speculation.read import Read
from speculation.sequence import Request
from speculation.target import Target
from tests.toys import toy_target

PROMPT = (9, 3, 7, 7, 5)
LOW, HIGH = (0, 1, 2), (3, 1, 3)
ATOL = 1e-4  # another attention sums in another order: 2e-5 here; another layer is off by 1


class Reader(NoDrafter):
    """Keeps what it is shown of row 0."""

    def __init__(self, layers: tuple[int, ...]) -> None:
        self.feature_layers = layers
        self.seen: list[Tensor] = []

    def observe(self, row: int, start: int, features: Tensor | None) -> None:
        assert features is not None
        self.seen.append(features.clone())


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Target:
    return toy_target(tmp_path_factory.mktemp("read") / "target")


def engine_of(target: Target, readers: dict[str, Reader]) -> Engine:
    return Engine(target, readers, default=next(iter(readers)), slots=1, max_len=64)


def run(engine: Engine, name: str) -> Tensor:
    """All that the drafter `name` sees of a request, [T, 3H]."""
    engine.submit(Request(name, PROMPT, 4, drafter=name))
    while not engine.idle:
        engine.step()
    reader = engine.drafters[name]
    assert isinstance(reader, Reader)
    return torch.cat(reader.seen)


def hidden_of(target: Target, layers: Sequence[int]) -> Tensor:
    """The prompt's states as transformers tells them, [T, 3H]."""
    with torch.inference_mode():
        told = target.model(torch.tensor([PROMPT]), output_hidden_states=True).hidden_states
    return torch.cat([told[layer][0] for layer in layers], dim=-1)


def test_drafts_of_one_engine_may_read_different_layers(target: Target) -> None:
    engine = engine_of(target, {"low": Reader(LOW), "high": Reader(HIGH)})
    for name, layers in (("low", LOW), ("high", HIGH)):
        seen = run(engine, name)
        assert torch.allclose(seen[: len(PROMPT)], hidden_of(target, layers), atol=ATOL)
        assert seen.shape[1] == len(layers) * 32


def test_engines_of_one_target_may_read_different_layers_and_leave_nothing_on_it(
    target: Target,
) -> None:
    first = engine_of(target, {"low": Reader(LOW)})
    second = engine_of(target, {"high": Reader(HIGH)})
    plain = engine_of(target, {"none": Reader(())})
    for engine, name, layers in ((first, "low", LOW), (second, "high", HIGH)):
        seen = run(engine, name)[: len(PROMPT)]
        assert torch.allclose(seen, hidden_of(target, layers), atol=ATOL)
    plain.submit(Request("plain", PROMPT, 4))
    while not plain.idle:
        plain.step()
    assert not any(module._forward_pre_hooks for module in target.model.modules())


def test_a_layer_that_there_is_not_is_refused(target: Target) -> None:
    with pytest.raises(ValueError, match="layer 4 is to be read: this target has 4"):
        engine_of(target, {"low": Reader((0, 1, 4))})


def test_equal_layouts_are_read_once_and_an_observer_gets_its_own() -> None:
    read = Read([(), LOW, HIGH, LOW])
    assert read.layers == LOW + HIGH
    states = torch.arange(12.0).reshape(1, 12)
    assert read.part(HIGH, states).tolist() == [[6.0, 7.0, 8.0, 9.0, 10.0, 11.0]]
    seen: list[Tensor | None] = []
    told = read.only(LOW, lambda _, part, __: seen.append(part))
    told("a", states, states)
    told("a", None, states)
    assert seen[0] is not None
    assert seen[0].tolist() == [[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]]
    assert seen[1] is None
