"""How content becomes a digest: 64 hexadecimal digits of a sha256. Knows nothing of models."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from registry.tensors import Tensor

Progress = Callable[[int, int, str], None]
READERS = 2  # tensors are read and hashed side by side; more than two outrun a disk


def no_progress(done: int, total: int, what: str) -> None:
    """The progress of those who do not watch."""


def digest_of(value: Any) -> str:
    """The digest of plain data, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def digest_of_tensors(
    tensors: Mapping[str, Tensor], *, what: str = "", progress: Progress = no_progress
) -> str:
    """The digest of the sorted per-tensor digests (name, dtype, shape, bytes).

    `progress` gets bytes done, bytes in total and `what`, in the caller's thread.
    """
    ordered = sorted(tensors.values(), key=lambda tensor: tensor.name)
    total, done = sum(tensor.size_bytes for tensor in ordered), 0
    contents: list[list[str]] = []
    with ThreadPoolExecutor(READERS) as readers:
        digests = readers.map(Tensor.content_digest, ordered)
        for tensor, content in zip(ordered, digests, strict=True):
            contents.append([tensor.name, content])
            done += tensor.size_bytes
            progress(done, total, what)
    return digest_of(contents)


def digest_of_file(path: Path) -> str:
    """The sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
