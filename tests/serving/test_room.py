"""What a model needs is what it then takes; what is free is what the machine says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from registry.configs import context_of
from registry.folders import config_of
from serving.main import serve
from serving.room import (
    Need,
    RoomError,
    check_start,
    fits,
    free_bytes,
    need_of,
)
from serving.settings import ServeSettings
from speculation.cache import ROOM
from speculation.target import load_target


@pytest.mark.parametrize(("dtype", "item"), [("auto", 4), ("float32", 4), ("bfloat16", 2)])
def test_what_a_model_needs_is_what_it_takes(target_folder: Path, dtype: str, item: int) -> None:
    target = load_target(target_folder, dtype=dtype)
    cache = target.new_cache(rows=3, max_len=100)
    need = need_of(target_folder, cached_tokens=3 * cache.max_len, dtype=dtype)
    parameters = sum(one.numel() for one in target.model.parameters())
    assert need.weights_bytes == item * parameters
    kept = [*cache.keys, *cache.values]
    assert need.cache_bytes == sum(one.numel() * one.element_size() for one in kept)


def test_a_reserve_has_to_fit_too_and_what_nobody_can_tell_is_taken_to_fit() -> None:
    need = Need(60, 30) + Need(0, 10)
    assert need == Need(60, 40)
    assert fits(need, 111)
    assert not fits(need, 109)
    assert fits(need, 100, reserve=0.0)
    assert fits(need, None)


@pytest.mark.parametrize("drafts", [{}, {"trial": True, "arms": {"a": "draft", "b": "none"}}])
def test_what_cannot_fit_is_said_before_it_is_begun(
    target_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drafts: dict[str, Any]
) -> None:
    arms = {name: str(target_folder) for name in drafts.get("arms", ())} | {"b": "none"}
    trial = drafts | {"arms": arms} if drafts else drafts
    many = ServeSettings(home=tmp_path, target=target_folder, max_slots=1000, **trial)
    context = min(many.max_context, context_of(config_of(target_folder), target_folder)) + ROOM
    need = need_of(
        target_folder, cached_tokens=1000 * context + many.prefix_tokens, dtype=many.dtype
    )
    if drafts:
        need += need_of(target_folder, cached_tokens=1000 * context, dtype=many.dtype)
    check_start(many, need.bytes)
    check_start(many, None)
    with pytest.raises(RoomError, match=r"got max_slots 1000 .* GB are free: lower one"):
        check_start(many, need.bytes - 1)
    monkeypatch.setattr("serving.room.free_bytes", lambda device: 1000)
    with pytest.raises(RoomError):
        serve(many, environ={})
    assert not list(tmp_path.iterdir()), "no home was made"


def test_this_machine_says_what_is_free() -> None:
    free = free_bytes("cpu")
    assert free is None or free > 2**20
