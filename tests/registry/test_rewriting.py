from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

from registry.digests import digest_of_tensors
from registry.rewriting import Made, write_tensors
from registry.tensors import Tensor, tensors_of

TYPES = [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int8, torch.bool]
TYPES += [torch.float8_e4m3fn]
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
SHAPES = st.lists(st.integers(0, 5), max_size=3)


@settings(max_examples=60, deadline=None)
@given(held=st.dictionaries(NAMES, st.tuples(st.sampled_from(TYPES), SHAPES), max_size=6))
def test_tensors_written_anew_are_the_same_content_to_us_and_to_the_library(
    tmp_path_factory: pytest.TempPathFactory, held: dict[str, tuple[torch.dtype, list[int]]]
) -> None:
    held.pop("__metadata__", None)
    place = tmp_path_factory.mktemp("anew")
    values = {n: torch.randint(0, 2, shape).to(dtype) for n, (dtype, shape) in held.items()}
    save_file(values, place / "first.safetensors")
    first = tensors_of(place / "first.safetensors")
    write_tensors(place / "second.safetensors", first)
    second = tensors_of(place / "second.safetensors")
    assert digest_of_tensors(second) == digest_of_tensors(first)
    with safe_open(place / "second.safetensors", framework="pt") as read:
        assert set(read.keys()) == values.keys()
        for name, value in values.items():
            found = read.get_tensor(name)
            assert (found.dtype, found.shape) == (value.dtype, value.shape)
            assert torch.equal(found.float(), value.float())


def test_another_name_is_another_digest_and_the_bytes_stay(tmp_path: Path) -> None:
    save_file({"a": torch.ones(3), "b": torch.zeros(2)}, tmp_path / "one.safetensors")
    first = tensors_of(tmp_path / "one.safetensors")
    write_tensors(tmp_path / "two.safetensors", {"c": first["a"], "b": first["b"]})
    second = tensors_of(tmp_path / "two.safetensors")
    assert second["c"].content_digest() == first["a"].content_digest()
    assert digest_of_tensors(second) != digest_of_tensors(first)


def test_a_made_tensor_lies_beside_those_of_files(tmp_path: Path) -> None:
    save_file({"a": torch.ones(3, dtype=torch.float16)}, tmp_path / "one.safetensors")
    made = Made("I64", (2,), np.array([7, 9], dtype=np.int64).tobytes())
    both: dict[str, Tensor | Made] = {**tensors_of(tmp_path / "one.safetensors"), "d2t": made}
    write_tensors(tmp_path / "two.safetensors", both)
    with safe_open(tmp_path / "two.safetensors", framework="pt") as read:
        assert read.get_tensor("d2t").tolist() == [7, 9]
        assert read.get_tensor("a").tolist() == [1, 1, 1]


def test_a_write_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.ones(3)}, path)
    before = path.read_bytes()
    tensors = tensors_of(path)

    def broken(tensor: Tensor) -> list[bytes]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Tensor, "chunks", broken)
    with pytest.raises(OSError, match="No space"):
        write_tensors(path, tensors)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
