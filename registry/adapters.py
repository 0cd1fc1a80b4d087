"""LoRA releases: the digest of an adapter, and the record that a merged folder carries.

A LoRA release is its base and its adapter. Merged bytes are never an identity, since they depend
on the dtype and device of the merge; the record beside them says what they were merged from, and
for which bytes it says so.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from registry.answers import Compatibility
from registry.cache import DigestCache
from registry.configs import quantization_of
from registry.digests import Progress, digest_of, digest_of_tensors, no_progress
from registry.errors import FolderError
from registry.folders import adapter_weights_of, config_of, json_of, names_code, weights_of
from registry.weights import read_weights

MERGE_RECORD = "paceline-merge.json"
PREFIX = "base_model.model."  # of every name in an adapter, as PEFT writes it
SIDES = {"A": 1, "B": 0}  # which of a matrix's sizes is the target's own: A [r, in], B [out, r]
NOT_MEANT = frozenset(  # where the adapter was made and how it is loaded, not what it computes
    {"auto_mapping", "base_model_name_or_path", "inference_mode", "peft_version", "revision"}
)
UNORDERED = frozenset({"target_modules", "modules_to_save", "exclude_modules"})


def fingerprint_adapter(
    folder: Path, *, progress: Progress = no_progress, cache: DigestCache | None = None
) -> str:
    """The digest of a PEFT adapter: its tensors and what of its configuration has a meaning."""
    config = json_of(folder, "adapter_config.json")
    if config is None:
        raise FolderError(f"{folder}: has no adapter_config.json: is this a PEFT adapter?")
    if names_code(config):
        raise FolderError(f"{folder}: its adapter_config.json names code to run; none is run")
    meaning = {
        key: sorted(value, key=str) if key in UNORDERED and isinstance(value, list) else value
        for key, value in config.items()
        if key not in NOT_MEANT and value is not None
    }
    tensors = adapter_weights_of(folder)
    return digest_of(
        [digest_of_tensors(tensors, what=folder.name, progress=progress, cache=cache), meaning]
    )


def adapter_set(adapters: Mapping[str, str]) -> str:
    """A name for adapters served together, of their names and digests; empty where there are none.

    >>> adapter_set({"law": "a" * 64}) == adapter_set({"tax": "a" * 64})
    False
    """
    if not adapters:
        return ""
    named = "\n".join(f"{digest} {name}" for name, digest in sorted(adapters.items()))
    return hashlib.sha256(named.encode()).hexdigest()


def adapter_fits(target: Path, folder: Path) -> Compatibility:
    """Whether every matrix of the LoRA adapter in `folder` has its place in the target's weights.

    Reads headers alone. Of a quantized target shapes are packed, so only names are compared.
    """
    weights = weights_of(target)
    packed = quantization_of(config_of(target)) is not None
    reasons: list[str] = []
    for name, tensor in sorted(adapter_weights_of(folder).items()):
        module, found, _ = name.removeprefix(PREFIX).partition(".lora_")
        side = name.rpartition(".lora_")[2].partition(".")[0]
        if not found or side not in SIDES:
            continue  # biases, magnitudes, embeddings: the loader says what it takes
        places = [held for held in weights if held.startswith(module + ".")]
        whole = weights.get(module + ".weight")
        if not places:
            reasons.append(f"it adapts {module}, which the target has not")
        elif not packed and whole is not None:
            wanted = whole.shape[SIDES[side] :][:1]
            if tensor.shape[SIDES[side] :][:1] != wanted or len(tensor.shape) != 2:
                reasons.append(
                    f"{name} is {list(tensor.shape)}, the target's {module} {list(whole.shape)}"
                )
    return Compatibility.of(reasons, [])


def record_merge(merged: Path, *, base: Path, adapter: Path) -> Path:
    """Write down in the folder `merged` that it is `adapter` merged into `base`; give the file.

    Call it once, right after merging: the merged folder is then the release that the base with
    the adapter is, wherever the same merge was made.
    """
    record = {
        "base_weights": read_weights(base).digest,
        "adapter": fingerprint_adapter(adapter),
        "merged_weights": read_weights(merged).digest,
    }
    path = merged / MERGE_RECORD
    beside = path.with_suffix(".partial")
    beside.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    beside.replace(path)
    return path


def merged_from(folder: Path, merged_weights: str) -> tuple[str, str] | None:
    """The digests of the base's weights and of the adapter, None for a folder not merged.

    `FolderError` where the folder's weights are not those that the record was written for.
    """
    record = json_of(folder, MERGE_RECORD)
    if record is None:
        return None
    said = [record.get(name) for name in ("base_weights", "adapter")]
    if any(not isinstance(one, str) for one in said):
        raise FolderError(
            f"{folder / MERGE_RECORD}: names no base_weights or no adapter: delete it"
        )
    if record.get("merged_weights") != merged_weights:
        raise FolderError(
            f"{folder}: its weights are not the ones {MERGE_RECORD} was written for. Merge the "
            "adapter again, or delete that file to have the folder taken as it is"
        )
    return str(said[0]), str(said[1])
