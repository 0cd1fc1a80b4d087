"""Folders whose JSON holds anything: each is read or refused with a reason, and nothing else."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from registry.adapters import adapter_fits, record_merge
from registry.compatibility import compare
from registry.errors import FolderError
from registry.fingerprint import fingerprint, fingerprint_draft
from registry.tensors import Tensor, tensors_of
from tests.registry import tiny

ODD: list[Any] = [None, True, -1, 0, 7, 10**30, 1.5, "x", "", "\ud800", [], [1, "a"], [[]], [None]]
ODD += [{}, {"a": 1}, {"x": "y"}, {"content": 3}, [{"name": 1}], [{"name": "a"}], {"1": {}}]
FILES = [
    *(("target", name) for name in ("config.json", "generation_config.json", "added_tokens.json")),
    *(("target", name) for name in ("tokenizer_config.json", "special_tokens_map.json")),
    *(("target", name) for name in ("chat_template.json", "model.safetensors.index.json")),
    *(("small", name) for name in ("config.json", "generation_config.json")),
    ("small", "tokenizer_config.json"),
    ("head", "config.json"),
    ("target", "paceline-merge.json"),
    ("lora", "adapter_config.json"),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target with every file that may describe it, a head and a small draft for it."""
    place = tmp_path_factory.mktemp("folders")
    target = tiny.target(place / "target")
    tiny.shard(target, tiny.arrays(), 2)
    tiny.write_json(target / "added_tokens.json", {"<|user|>": 1})
    tiny.write_json(target / "special_tokens_map.json", {"eos_token": {"content": "<|end|>"}})
    tiny.write_json(target / "chat_template.json", {"chat_template": "x"})
    config = json.loads((target / "tokenizer_config.json").read_text())
    config["added_tokens_decoder"] = {"1": {"content": "<|user|>", "special": True}}
    config["chat_template"] = [{"name": "default", "template": "x"}]
    tiny.write_json(target / "tokenizer_config.json", config)
    tiny.head(place / "head", quantization_config={"quant_method": "awq"})
    tiny.target(place / "small", seed=3)
    record_merge(target, base=place / "small", adapter=tiny.adapter(place / "lora"))
    assert compare(target, place / "head").ok
    assert compare(target, place / "small").ok
    return place


def places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield before
    if isinstance(value, dict | list):
        for key, held in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(held, (*before, key))


def changed(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    if not place:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = changed(value[place[0]], place[1:], new)
    return copy


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(file=st.sampled_from(FILES), where=st.randoms(use_true_random=False), new=st.data())
def test_any_value_anywhere_in_a_folders_json_is_read_or_refused(
    folders: Path, file: tuple[str, str], where: Any, new: st.DataObject
) -> None:
    path = folders / file[0] / file[1]
    before = path.read_text()
    value = json.loads(before)
    place = where.choice(list(places(value)))
    path.write_text(json.dumps(changed(value, place, new.draw(st.sampled_from(ODD)))))
    try:
        for attempt in (
            lambda: fingerprint(folders / "target"),
            lambda: fingerprint_draft(folders / "head"),
            lambda: compare(folders / "target", folders / "head"),
            lambda: compare(folders / "target", folders / "small"),
            lambda: fingerprint(folders / "small", adapter=folders / "lora"),
            lambda: adapter_fits(folders / "target", folders / "lora"),
        ):
            with suppress(FolderError):
                attempt()
    finally:
        path.write_text(before)


@pytest.mark.parametrize("levels", [65, 400, 900, 100_000])
@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_json_that_is_nested_without_end_is_refused(tmp_path: Path, name: str, levels: int) -> None:
    """Between the levels that Python's reader takes and those that a walk over them takes."""
    folder = tiny.target(tmp_path / "target")
    fingerprint(folder)
    path = folder / name
    path.write_text(f'{{"x": {"[" * levels}{"]" * levels}, {path.read_text().strip()[1:]}')
    with pytest.raises(FolderError, match="nested deeper than 64|is not JSON"):
        fingerprint(folder)


def test_a_shape_of_a_million_sizes_is_refused_before_it_is_multiplied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The product alone would take hours."""
    multiplied: list[object] = []
    monkeypatch.setattr("registry.tensors.prod", multiplied.append)
    entry = {"a": {"dtype": "U8", "shape": [2**62] * 1_000_000, "data_offsets": [0, 4]}}
    text = json.dumps(entry).encode()
    path = tmp_path / "hostile.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(4))
    with pytest.raises(FolderError, match="at most 64 sizes"):
        tensors_of(path)
    assert multiplied == []


@pytest.mark.parametrize("size", [2**63, 10**30])
def test_a_size_that_no_machine_can_count_is_refused(tmp_path: Path, size: int) -> None:
    text = json.dumps({"a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    path = tmp_path / "hostile.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    with pytest.raises(FolderError, match="wanted numbers below"):
        tensors_of(path)


def two_sets_of_weights(folder: Path) -> None:
    tiny.shard(folder, tiny.arrays(), 2)
    save_file(tiny.arrays(9), folder / "model.safetensors")


def a_link_to_itself(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to("model.safetensors")


def a_link_to_nothing(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to("nowhere.json")


def a_template_that_is_no_text(folder: Path) -> None:
    (folder / "chat_template.jinja").write_bytes(b"\xff\xfe{{ messages }}")


def a_template_that_leads_outside(folder: Path) -> None:
    (folder / "additional_chat_templates").mkdir()
    (folder.parent / "secret").write_text("secret")
    (folder / "additional_chat_templates" / "tool.jinja").symlink_to(folder.parent / "secret")


def code_for_pictures(folder: Path) -> None:
    tiny.write_json(folder / "preprocessor_config.json", {"auto_map": {"AutoProcessor": "evil.P"}})


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (two_sets_of_weights, "two sets of weights: remove one"),
        (a_link_to_itself, "leads nowhere"),
        (a_link_to_nothing, "leads nowhere"),
        (a_template_that_is_no_text, "is no UTF-8"),
        (a_template_that_leads_outside, "leads outside"),
        (code_for_pictures, "auto_map"),
    ],
)
def test_a_folder_that_can_be_read_in_two_ways_or_leads_elsewhere_is_refused(
    tmp_path: Path, damage: Callable[[Path], None], fault: str
) -> None:
    folder = tiny.target(tmp_path / "target")
    damage(folder)
    with pytest.raises(FolderError, match=fault):
        fingerprint(folder)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(name=st.text(max_size=40))
@example("..")
@example("../target/model-00001-of-00002.safetensors")
def test_whatever_an_index_names_nothing_outside_the_folder_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = tiny.target(tmp_path / "target")
    (folder / "model.safetensors").unlink()
    tiny.write_json(folder / "model.safetensors.index.json", {"weight_map": {"a": name}})
    opened: list[Path] = []

    def opening(path: Path) -> dict[str, Tensor]:
        opened.append(path)
        return {}

    with monkeypatch.context() as patched:
        patched.setattr("registry.folders.tensors_of", opening)
        with pytest.raises(FolderError):
            fingerprint(folder)
    assert all(path.resolve().parent == folder.resolve() for path in opened)
