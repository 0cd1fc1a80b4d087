from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from registry.errors import FolderError
from registry.fingerprint import fingerprint, fingerprint_draft
from registry.tensors import tensors_of
from tests.registry import tiny


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny.target(tmp_path / "target")


def crafted(header: object, data: bytes = b"", *, claimed: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if claimed is None else claimed) + text + data


def entry(dtype: object = "U8", shape: object = (4,), offsets: object = (0, 4)) -> object:
    return {"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "no safetensors file"),
        (b"PK\x03\x04" + bytes(100), "a zip archive"),
        (b"\x80\x02}q\x00." + bytes(100), "a Python pickle"),
        (b"GGUF" + bytes(100), "a GGUF file"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "Git LFS pointer"),
        (crafted({}, claimed=2**62), "no safetensors file"),
        (crafted({}, claimed=2**20), "no safetensors file"),
        (crafted(b'{"a": '), "header is broken"),
        (crafted(b'{"\xff": 1}'), "header is broken"),
        (crafted(b'{"a": {"b": ' + b"[" * 100_000), "header is broken"),
        (crafted(b'{"a": 1, "a": 2}'), "a name occurs twice"),
        (crafted({"a": 7}), "is no tensor's"),
        (crafted(entry(dtype="OBJECT"), bytes(4)), "is no tensor's"),
        (crafted(entry(shape=[-4]), bytes(4)), "is no tensor's"),
        (crafted(entry(shape=["x", 10**9]), bytes(4)), "is no tensor's"),
        (crafted(entry(shape=[True]), bytes(4)), "is no tensor's"),
        (crafted(entry(shape=[5]), bytes(4)), "wanted 5 bytes"),
        (crafted(entry(shape=[2**40, 2**40]), bytes(4)), "got bytes 0 to 4"),
        (crafted(entry(offsets=[4, 8]), bytes(8)), "leaves a hole"),
        (crafted(entry(), bytes(3)), "truncated: got"),
        (crafted(entry(), bytes(5)), "longer than its header says"),
    ],
)
def test_what_is_not_sound_safetensors_is_refused_by_content(
    folder: Path, content: bytes, fault: str
) -> None:
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(FolderError, match=fault):
        fingerprint(folder)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(where=st.integers(0, 1_200), byte=st.integers(0, 255), cut=st.integers(0, 3_000))
def test_a_damaged_file_is_read_or_refused_and_nothing_else(
    tmp_path: Path, where: int, byte: int, cut: int
) -> None:
    path = tmp_path / "damaged.safetensors"
    save_file(tiny.arrays(), path)
    content = bytearray(path.read_bytes())
    content[where % len(content)] = byte
    path.write_bytes(bytes(content)[: max(1, len(content) - cut)])
    try:
        tensors = tensors_of(path)
    except FolderError:
        return
    for tensor in tensors.values():
        assert len(tensor.content_digest()) == 64


@pytest.mark.parametrize(
    "name", ["../secret.safetensors", "/etc/passwd", "a/b.safetensors", "..", "", "a\0b", "a\\b", 7]
)
def test_an_index_cannot_point_outside_its_folder(folder: Path, name: object) -> None:
    save_file(tiny.arrays(), folder.parent / "secret.safetensors")
    tiny.write_json(
        folder / "model.safetensors.index.json", {"weight_map": {"model.norm.weight": name}}
    )
    with pytest.raises(FolderError, match="inside it|is named by"):
        fingerprint(folder)


def test_a_link_that_leads_outside_is_refused(folder: Path, tmp_path: Path) -> None:
    moved = tmp_path / "outside.safetensors"
    os.replace(folder / "model.safetensors", moved)
    (folder / "model.safetensors").symlink_to(moved)
    with pytest.raises(FolderError, match="leads outside"):
        fingerprint(folder)


def test_the_links_of_the_hugging_face_cache_are_followed(tmp_path: Path) -> None:
    cache = tmp_path / "models--org--name"
    (cache / "blobs").mkdir(parents=True)
    snapshot = tiny.target(cache / "snapshots" / "abc")
    wanted = fingerprint(snapshot)
    for file in list(snapshot.iterdir()):
        os.replace(file, cache / "blobs" / f"blob-{file.name}")
        file.symlink_to(Path("../../blobs") / f"blob-{file.name}")
    assert fingerprint(snapshot) == wanted


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_a_folder_that_names_code_to_run_is_refused(folder: Path, name: str) -> None:
    path = folder / name
    code = {"auto_map": {"AutoModel": "model.Evil"}}
    tiny.write_json(path, {**json.loads(path.read_text()), "nested": [code]})
    with pytest.raises(FolderError, match="auto_map"):
        fingerprint(folder)


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def only_a_pickle(folder: Path) -> None:
    os.replace(folder / "model.safetensors", folder / "pytorch_model.bin")


def a_shard_is_gone(folder: Path) -> None:
    tiny.shard(folder, tiny.arrays(), 3)
    (folder / "model-00002-of-00003.safetensors").unlink()


def a_tensor_twice(folder: Path) -> None:
    tiny.shard(folder, tiny.arrays(), 2)
    save_file(tiny.arrays(), folder / "model-00002-of-00002.safetensors")


def an_index_without_its_tensor(folder: Path) -> None:
    tiny.shard(folder, tiny.arrays(), 2)
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["model.lost"] = "model-00001-of-00002.safetensors"
    tiny.write_json(path, index)


def half_a_config(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(path.read_text()[:40])


def a_list_for_a_config(folder: Path) -> None:
    tiny.write_json(folder / "config.json", [])


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (remove("model.safetensors"), "got no weights at all, wanted model.safetensors"),
        (only_a_pickle, "got pytorch_model.bin, wanted model.safetensors"),
        (a_shard_is_gone, "model-00002-of-00003.safetensors: is named by"),
        (a_tensor_twice, "is in another file too"),
        (an_index_without_its_tensor, "says 'model.lost' is in"),
        (remove("config.json"), "has no config.json"),
        (half_a_config, "is not JSON"),
        (a_list_for_a_config, "wanted a JSON object"),
        (remove("tokenizer.json"), "has no tokenizer.json"),
    ],
)
def test_a_broken_folder_is_refused_and_the_fault_is_named(
    folder: Path, damage: Callable[[Path], None], fault: str
) -> None:
    damage(folder)
    with pytest.raises(FolderError, match=fault):
        fingerprint(folder)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="got no folder"):
        fingerprint(tmp_path / "nowhere")
    with pytest.raises(FolderError, match="got no folder"):
        fingerprint_draft(tmp_path / "nowhere")
