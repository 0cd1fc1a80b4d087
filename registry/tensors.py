"""Safetensors files read as bytes. Knows the file format; knows nothing of models or frameworks.

The header is checked as strictly as the format allows before a byte of data is read: a hostile
file can neither ask for much memory nor point outside its own data.
Format: https://huggingface.co/docs/safetensors, "Format".
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from registry.errors import FolderError

HEADER_LIMIT_BYTES = 100_000_000  # the limit of the safetensors library itself
MOST_DIMENSIONS = 64  # numpy's and torch's own limit; the product of millions would take hours
MOST_ELEMENTS = 2**63
CHUNK_BYTES = 1 << 20
DTYPE_BITS: Mapping[str, int] = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0"), 8),
    **dict.fromkeys(("F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 64),
}
FOREIGN = (  # what people save weights as when it is not safetensors, by the first bytes
    (b"PK\x03\x04", "a zip archive (a PyTorch pickle)"),
    (b"\x80", "a Python pickle"),
    (b"GGUF", "a GGUF file"),
    (b"\x89HDF", "an HDF5 file"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself"),
)


@dataclass(frozen=True, slots=True)
class Tensor:
    """Where one tensor lies; its bytes are read only when asked for."""

    name: str
    dtype: str  # as safetensors spells it, e.g. "BF16"
    shape: tuple[int, ...]
    path: Path
    start: int  # byte offset in the file
    size_bytes: int

    @property
    def numel(self) -> int:
        return prod(self.shape)

    def chunks(self) -> Iterator[bytes]:
        """The tensor's bytes in pieces. `FolderError` where the file ends early."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            at, end = self.start, self.start + self.size_bytes
            while at < end:
                piece = os.pread(descriptor, min(CHUNK_BYTES, end - at), at)
                if not piece:
                    raise FolderError(
                        f"{self.path}: the file became shorter while {self.name} was read"
                    )
                at += len(piece)
                yield piece
        finally:
            os.close(descriptor)

    def content_digest(self, read: Callable[[int], None] | None = None) -> str:
        """sha256 (hex) of dtype, shape and bytes; the name is left out so that twins are seen.

        `read` gets the bytes of each piece as it is done.
        """
        digest = hashlib.sha256(f"{self.dtype}\0{list(self.shape)}\0".encode())
        for piece in self.chunks():
            digest.update(piece)
            if read is not None:
                read(len(piece))
        return digest.hexdigest()

    def equals(self, other: Tensor) -> bool:
        """Whether dtype, shape and bytes are the same: read side by side, which hashing is not."""
        if (self.dtype, self.shape) != (other.dtype, other.shape):
            return False
        return all(one == two for one, two in zip(self.chunks(), other.chunks(), strict=True))


def tensors_of(path: Path) -> dict[str, Tensor]:
    """The tensors of one safetensors file by name. `FolderError` for anything else or broken."""
    try:
        with path.open("rb") as file:
            file_bytes = os.fstat(file.fileno()).st_size
            start = file.read(32)
            for magic, what in FOREIGN:
                if start.startswith(magic) and not _plausible(start, file_bytes):
                    raise FolderError(
                        f"{path}: got {what}, wanted safetensors. Save the model with "
                        "save_pretrained (safetensors is its default) and try again"
                    )
            if not _plausible(start, file_bytes):
                raise FolderError(
                    f"{path}: got a file of {file_bytes} bytes that is no safetensors file (or one "
                    "cut inside its header). Copy or download it again"
                )
            header_bytes = int.from_bytes(start[:8], "little")
            file.seek(8)
            raw = file.read(header_bytes)
    except OSError as error:
        raise FolderError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise FolderError(f"{path}: the safetensors header is broken: {error}") from error
    return _checked(path, header, data_start=8 + header_bytes, file_bytes=file_bytes)


def _plausible(start: bytes, file_bytes: int) -> bool:
    if len(start) < 10 or start[8:9] != b"{":
        return False
    header_bytes = int.from_bytes(start[:8], "little")
    return 2 <= header_bytes <= min(HEADER_LIMIT_BYTES, file_bytes - 8)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(read := dict(pairs)) != len(pairs):
        raise ValueError("a name occurs twice")
    return read


def _checked(
    path: Path, header: Mapping[str, Any], *, data_start: int, file_bytes: int
) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        try:
            dtype, shape = entry["dtype"], entry["shape"]
            begin, end = entry["data_offsets"]
            if not isinstance(shape, list) or len(shape) > MOST_DIMENSIONS:
                raise ValueError(f"wanted a list of at most {MOST_DIMENSIONS} sizes for a shape")
            if not all(type(n) is int and n >= 0 for n in (*shape, begin, end)):
                raise ValueError("wanted whole numbers from 0")
            if any(n >= MOST_ELEMENTS for n in (*shape, begin, end)):
                raise ValueError(f"wanted numbers below {MOST_ELEMENTS}")
            bits = DTYPE_BITS[dtype] * prod(shape)
        except (KeyError, TypeError, ValueError) as error:
            raise FolderError(
                f"{path}: tensor {name!r}: its header entry is no tensor's: {error!r}"
            ) from error
        if (end - begin) * 8 != bits:
            raise FolderError(
                f"{path}: tensor {name!r}: got bytes {begin} to {end}, wanted {bits / 8:g} bytes "
                f"for {dtype} {list(shape)}"
            )
        found[name] = Tensor(name, dtype, tuple(shape), path, data_start + begin, end - begin)
    at = data_start
    for tensor in sorted(found.values(), key=lambda t: (t.start, t.size_bytes)):
        if tensor.start != at:
            raise FolderError(f"{path}: tensor {tensor.name!r} leaves a hole or overlaps another")
        at += tensor.size_bytes
    if at != file_bytes:
        state = "truncated" if file_bytes < at else "longer than its header says"
        raise FolderError(
            f"{path}: {state}: got {file_bytes} bytes, wanted {at}. Copy or download it again"
        )
    return found
