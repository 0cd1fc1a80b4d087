"""Heads of the `speculators` project's layout as heads that are served here (see `speculators`).

What would compute something else is refused with every reason; what has no place here is said. No
code that comes with a folder is run or copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from registry.configs import is_speculators, whole
from registry.errors import FolderError
from registry.folders import config_of, json_of, names_code, weights_of
from registry.rewriting import Made
from registry.speculators import (
    HEAD,
    LEARNED,
    MAPS,
    OURS,
    SWITCHES,
    THEIRS,
    TYPE,
    Carried,
    check_names,
    write_draft,
)
from registry.tensors import Tensor
from registry.weights import EMBEDDINGS

COPIED = {"verifier_lm_head.weight", "verifier_norm.weight"}  # the target's, kept to train with
PLAIN = {  # of the decoder layer: the only value that ours computes, which is what unsaid means too
    "model_type": "llama",
    "num_hidden_layers": 1,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "sliding_window": None,
}


def from_speculators(source: Path, into: Path, *, target: Path) -> Carried:
    """Write the head that `source` holds in the layout of `speculators` into the folder `into`, as
    a head of the target in the folder `target`.

    `FolderError` with every reason why the head here would compute something else.
    """
    config = json_of(source, "config.json") or {}
    if not is_speculators(config):
        raise FolderError(f"{source}: its config.json has no speculators_model_type")
    left: list[str] = []
    if config.pop("auto_map", None) is not None:
        left.append("its auto_map names code that comes with it: none of it is run or copied")
    if names_code(config):
        raise FolderError(f"{source}: an auto_map inside its config.json names code to run")
    layer = config.get("transformer_layer_config")
    if config["speculators_model_type"] != TYPE or not isinstance(layer, Mapping):
        raise FolderError(
            f"{source}: holds the kind {config['speculators_model_type']!r:.40}, wanted {TYPE!r} "
            "with its transformer_layer_config: no other has a head here"
        )
    theirs = config_of(target)
    reasons = [f"{key} is on" for key in SWITCHES if config.get(key)]
    reasons += [
        f"its layer has {key} {layer[key]!r:.40}, wanted {plain!r}"
        for key, plain in PLAIN.items()
        if key in layer and layer[key] != plain
    ]
    if reasons:
        raise FolderError(f"{source}: a head here computes otherwise: {'; '.join(reasons)}")
    tensors = {name.replace(THEIRS, OURS, 1): t for name, t in weights_of(source).items()}
    _drop_embedding(source, tensors, target, left)
    for name in sorted(COPIED & tensors.keys()):
        del tensors[name]
        left.append(f"{name} is the target's own and was left out")
    vocabulary = whole(layer, "vocab_size", source)
    maps: dict[str, Tensor | Made] = {}
    if whole(config, "draft_vocab_size", source, default=vocabulary) == vocabulary:
        tensors = {name: tensor for name, tensor in tensors.items() if name not in MAPS}
        maps["d2t"] = Made("I64", (vocabulary,), bytes(8 * vocabulary))
        maps["t2d"] = Made("BOOL", (vocabulary,), b"\1" * vocabulary)
    check_names(source, {**tensors, **maps}, LEARNED | MAPS)
    _say_proposals(config.get("speculators_config"), left)
    layers = whole(theirs, "num_hidden_layers", target)
    written = {
        **_rotary(layer),
        "architectures": [HEAD],
        "draft_vocab_size": config.get("draft_vocab_size", vocabulary),
        "eagle_aux_hidden_state_layer_ids": config.get("eagle_aux_hidden_state_layer_ids")
        or [min(2, layers - 1), layers // 2, max(layers - 3, 0)],  # what unsaid means there
    }
    if config.get("target_hidden_size") is not None:
        written["target_hidden_size"] = config["target_hidden_size"]
    write_draft(into, written, {**tensors, **maps})
    return Carried(into, tuple(left))


def _drop_embedding(
    source: Path, tensors: dict[str, Tensor], target: Path, left: list[str]
) -> None:
    """A head here reads its target's embedding; one that brings another computes otherwise."""
    own = tensors.pop("embed_tokens.weight", None)
    if own is None:
        return
    theirs = [tensor for name, tensor in weights_of(target).items() if name.endswith(EMBEDDINGS)]
    if len(theirs) != 1 or not (own.equals(theirs[0]) or _widened(theirs[0], own)):
        raise FolderError(
            f"{source}: its embed_tokens.weight is not the embedding of {target}, which is the one "
            "that a head here reads. Name the target that it was made for"
        )
    left.append("embed_tokens.weight is the target's own and was left out")


def _widened(narrow: Tensor, wide: Tensor) -> bool:
    """Whether `wide` is float32 of the bfloat16 `narrow`: its upper halves, the lower ones zero."""
    if (narrow.dtype, wide.dtype, narrow.shape) != ("BF16", "F32", wide.shape):
        return False
    rest = wide.chunks()
    for upper in narrow.chunks():
        piece = b""
        while len(piece) < 2 * len(upper):
            piece += next(rest)
        if piece[0::4].strip(b"\0") or piece[1::4].strip(b"\0"):
            return False
        if piece[2::4] != upper[0::2] or piece[3::4] != upper[1::2]:
            return False
    return True


def _rotary(layer: Mapping[str, Any]) -> dict[str, Any]:
    """The layer's configuration with its rotary settings where transformers 5 has them."""
    written = {key: value for key, value in layer.items() if key not in ("rope_scaling",)}
    if not isinstance(layer.get("rope_parameters"), Mapping):
        scaling = layer.get("rope_scaling")
        scaled = dict(scaling) if isinstance(scaling, Mapping) else {}
        kind = scaled.pop("type", "default")
        theta = layer.get("rope_theta", 10_000.0)  # what unsaid means for a Llama
        written.pop("rope_theta", None)
        written["rope_parameters"] = {"rope_type": kind, "rope_theta": theta, **scaled}
    return written


def _say_proposals(proposals: object, left: list[str]) -> None:
    methods = proposals.get("proposal_methods") if isinstance(proposals, Mapping) else None
    for method in methods if isinstance(methods, list) else ():
        if not isinstance(method, Mapping):
            continue
        kind, length = method.get("proposal_type"), method.get("speculative_tokens")
        left.append(
            f"it proposes {length!r:.20} tokens ({kind!r:.20}): here K belongs to the server, not "
            "to the draft"
        )
        if method.get("verifier_accept_k", 1) != 1 or method.get("accept_tolerance", 0):
            left.append("it accepts tokens that are not the target's own: here none ever is")
