"""Safetensors files written anew: the same bytes, under other names or in another order.

Tensors are streamed from the files they lie in, so that a file of any size takes the memory of one
piece. Knows the file format; knows nothing of models.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from registry.tensors import DTYPE_BITS, Tensor

ALIGNMENT = 8  # of the data's begin, as the safetensors library writes it


@dataclass(frozen=True, slots=True)
class Made:
    """A small tensor that lies in no file."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def chunks(self) -> list[bytes]:
        return [self.data]


def write_tensors(path: Path, tensors: Mapping[str, Tensor | Made]) -> None:
    """Write the tensors under the mapping's names, whole or not at all.

    Wider types come first, as the safetensors library has them: each then lies aligned.
    """
    order = sorted(tensors, key=lambda name: (-DTYPE_BITS[tensors[name].dtype], name))
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name in order:
        tensor = tensors[name]
        end = at + tensor.size_bytes
        shape = list(tensor.shape)
        header[name] = {"dtype": tensor.dtype, "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    beside = path.with_name(path.name + ".partial")
    try:
        with beside.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name in order:
                for piece in tensors[name].chunks():
                    file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
