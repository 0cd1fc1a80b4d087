"""What a release or a draft is, as digests of content (design.md, "Digests are of content").

Re-sharding, renaming and the order of files change nothing; a changed value, token, template or
default does. Every part has its digest of its own, so that a difference can be named. Reads bytes;
knows nothing of torch, text or the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry.adapters import fingerprint_adapter, merged_from
from registry.cache import DigestCache
from registry.configs import (
    architecture_of,
    context_of,
    generation_of,
    is_head,
    meaning_of,
    quantization_of,
)
from registry.digests import Progress, digest_of, digest_of_tensors, no_progress
from registry.errors import FolderError
from registry.folders import config_of, weights_of
from registry.tensors import Tensor
from registry.tokens import canonical, chat_templates, special_tokens, tokenizer_of
from registry.weights import read_weights

DTYPE_NAMES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64"}
PARTS = ("weights", "adapter", "tokenizer", "chat_template", "generation", "configuration")
MAPS = ("d2t", "t2d")  # a head's table between its vocabulary and the target's: no parameters


@dataclass(frozen=True, slots=True)
class Release:
    """One immutable version of a target, by what it is."""

    digest: str  # of all parts below
    weights: str  # of a LoRA release: those of its base
    tokenizer: str
    chat_template: str
    generation: str  # generation defaults, stop tokens among them
    configuration: str  # config.json without what does not change the function
    architecture: str
    dtype: str  # of most bytes of the weights
    quantization: str | None  # the method, None when not quantized
    context_configured: int  # tokens
    parameters: int
    adapter: str | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """One version of a draft, by what it is."""

    kind: str  # "model", "head", "ngram", "none"
    digest: str
    architecture: str | None = None
    dtype: str | None = None
    quantization: str | None = None
    parameters: int = 0


def fingerprint(
    folder: Path,
    *,
    adapter: Path | None = None,
    progress: Progress = no_progress,
    cache: DigestCache | None = None,
) -> Release:
    """What the target in `folder` is, with the LoRA of the folder `adapter` on it when given.

    A folder that `record_merge` wrote about is the release it was merged from. `progress` gets
    bytes done, bytes in total, and the folder's name. `cache` spares reading weights that were read
    before; leave it out to register, and at the first load on a host. `FolderError` for a folder
    that is broken, unsafe (`auto_map`, no safetensors, names that lead outside) or not a model.
    """
    config = config_of(folder)
    read = read_weights(folder, progress=progress, cache=cache)
    tensors, weights = read.tensors, read.digest
    adapter_digest = None if adapter is None else fingerprint_adapter(adapter, progress=progress)
    merged = merged_from(folder, weights)
    if merged is not None:
        if adapter is not None:
            raise FolderError(
                f"{folder}: is merged already; give its base with the adapter instead"
            )
        weights, adapter_digest = merged
    parts = {
        "weights": weights,
        "adapter": adapter_digest,
        "tokenizer": digest_of([canonical(tokenizer_of(folder)), special_tokens(folder)]),
        "chat_template": digest_of(chat_templates(folder)),
        "generation": digest_of(generation_of(folder, config)),
        "configuration": digest_of(meaning_of(config)),
    }
    return Release(
        digest=digest_of(parts),
        weights=weights,
        tokenizer=str(parts["tokenizer"]),
        chat_template=str(parts["chat_template"]),
        generation=str(parts["generation"]),
        configuration=str(parts["configuration"]),
        architecture=architecture_of(config, folder),
        dtype=_dtype(tensors),
        quantization=quantization_of(config),
        context_configured=context_of(config, folder),
        parameters=sum(tensor.numel for tensor in tensors.values()),
        adapter=adapter_digest,
    )


def holds(folder: Path, release: str) -> bool:
    """Whether the folder is, now, the release of that digest. Reads all of it."""
    try:
        return fingerprint(folder).digest == release
    except (FolderError, OSError):
        return False


def fingerprint_draft(draft: str | Path, *, progress: Progress = no_progress) -> Draft:
    """What a draft is: "ngram", "none", or a folder. `FolderError` for a broken or unsafe folder.

    Drafts without weights have the digest of their kind.
    """
    if draft in ("ngram", "none"):
        return Draft(kind=str(draft), digest=digest_of(str(draft)))
    folder = Path(draft)
    config = config_of(folder)
    architecture = architecture_of(config, folder)
    kind = "head" if is_head(architecture) else "model"
    if kind == "head":
        tensors = weights_of(folder)
        parts: list[Any] = [
            digest_of_tensors(tensors, what=folder.name, progress=progress),
            meaning_of(config),
        ]
    else:
        read = read_weights(folder, progress=progress)
        tensors = read.tensors
        parts = [read.digest, meaning_of(config), canonical(tokenizer_of(folder))]
    return Draft(
        kind=kind,
        digest=digest_of(parts),
        architecture=architecture,
        dtype=_dtype(tensors),
        quantization=quantization_of(config),
        parameters=sum(t.numel for t in tensors.values() if t.name not in MAPS),
    )


def difference(release: Release, other: Release) -> str:
    """Which parts differ, for people: "the same weights; chat template changed"."""
    changed = [part for part in PARTS if getattr(release, part) != getattr(other, part)]
    if not changed:
        return "nothing differs"
    named = ", ".join(part.replace("_", " ") for part in changed) + " changed"
    return named if "weights" in changed else f"the same weights; {named}"


def _dtype(tensors: Mapping[str, Tensor]) -> str:
    sizes = Counter[str]()
    for tensor in tensors.values():
        sizes[tensor.dtype] += tensor.size_bytes
    if not sizes:
        return "none"
    name = sizes.most_common(1)[0][0]
    return DTYPE_NAMES.get(name, name.lower())
