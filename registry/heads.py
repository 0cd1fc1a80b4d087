"""Whether a head was made for a target: its shapes, the layers it reads, its vocabulary's tables.

Reads configurations and small tensors as bytes; loads no model.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from registry.configs import text_config, whole
from registry.errors import FolderError
from registry.folders import weights_of
from registry.tensors import Tensor
from registry.weights import EMBEDDINGS

LAYERS_READ = 3  # of the target, by an EAGLE-3 head


def head_fits(
    target: Mapping[str, Any], target_folder: Path, config: Mapping[str, Any], folder: Path
) -> list[str]:
    """A head uses its target's tokens and hidden states, so its shapes must be its target's."""
    reasons: list[str] = []
    asked, given = text_config(config), text_config(target)
    for name, ours in (
        ("vocab_size", asked.get("vocab_size")),
        ("hidden_size", asked.get("target_hidden_size", asked.get("hidden_size"))),
    ):
        if type(ours) is not int:
            reasons.append(
                f"config.json of the head has {name} {ours!r:.80}, wanted a whole number"
            )
        elif ours != given.get(name):
            reasons.append(
                f"the head was made for a target with {name} {ours}, {target_folder} has "
                f"{given.get(name)}"
            )
    layers = whole(given, "num_hidden_layers", target_folder, default=0)
    read = asked.get("eagle_aux_hidden_state_layer_ids") or ()
    if not isinstance(read, list | tuple) or any(type(layer) is not int for layer in read):
        reasons.append(f"the head reads the layers {read!r:.80}, wanted whole numbers")
    elif beyond := [layer for layer in read if not 0 <= layer <= layers]:
        reasons.append(f"the head reads layer {beyond[0]}, the target has {layers}")
    elif read and len(read) != LAYERS_READ:
        reasons.append(f"the head reads {len(read)} layers of the target, wanted {LAYERS_READ}")
    if not reasons:
        tensors = weights_of(folder)
        reasons += _joining(asked, given, tensors) + _draft_vocabulary(asked, tensors)
    return reasons


def _joining(
    asked: Mapping[str, Any], given: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> list[str]:
    """`fc` takes in the target's states of all layers that are read, side by side."""
    wanted = (asked.get("hidden_size"), LAYERS_READ * given["hidden_size"])
    if (fc := tensors.get("fc.weight")) is None:
        return ["fc.weight is missing, which takes in the target's states"]
    if fc.shape != wanted:
        return [f"fc.weight is {list(fc.shape)}, wanted {list(wanted)} for this target"]
    rows = (asked["vocab_size"], asked.get("hidden_size"))
    return [
        f"{name} is {list(tensor.shape)}, wanted {list(rows)} by config.json"
        for name, tensor in tensors.items()
        if name.endswith(EMBEDDINGS) and tensor.shape != rows
    ]


def _draft_vocabulary(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> list[str]:
    """`d2t` holds, for each draft token, how far the target's id lies beyond the draft's."""
    vocabulary, reduced = config["vocab_size"], config.get("draft_vocab_size")
    table, head = tensors.get("d2t"), tensors.get("lm_head.weight")
    rows = vocabulary if reduced is None else reduced
    if head is not None and head.shape[:1] != (rows,):
        return [f"lm_head.weight has {_rows(head)} rows, wanted {rows} by config.json"]
    if table is None:
        return [] if rows == vocabulary else ["config.json reduces the vocabulary, d2t is missing"]
    if table.dtype != "I64" or table.shape != (rows,):
        return [f"d2t is {table.dtype} {list(table.shape)}, wanted I64 [{rows}]"]
    ids = [draft_id + beyond for draft_id, beyond in enumerate(_numbers(table))]
    for draft_id, token_id in enumerate(ids):
        if not 0 <= token_id < vocabulary:
            return [f"d2t sends draft token {draft_id} to {token_id}, beyond {vocabulary} tokens"]
    if len(set(ids)) != len(ids):
        return ["d2t sends two draft tokens to one target token"]
    return _inverse(tensors.get("t2d"), set(ids), vocabulary)


def _rows(tensor: Tensor) -> int:
    return tensor.shape[0] if tensor.shape else 0


def _inverse(table: Tensor | None, ids: set[int], vocabulary: int) -> list[str]:
    if table is None:
        return []
    if table.dtype != "BOOL" or table.shape != (vocabulary,):
        return [f"t2d is {table.dtype} {list(table.shape)}, wanted BOOL [{vocabulary}]"]
    told = {token_id for token_id, held in enumerate(b"".join(table.chunks())) if held}
    if odd := sorted(told ^ ids):
        return [f"t2d and d2t disagree about token {odd[0]}"]
    return []


def _numbers(table: Tensor) -> array[int]:
    numbers = array("q")
    numbers.frombytes(b"".join(table.chunks()))
    if numbers.itemsize != 8:
        raise FolderError(f"{table.path}: this machine has no 64-bit integers")
    return numbers
