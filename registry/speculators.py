"""Draft heads in the layout of the `speculators` project, which vLLM loads as well; both ways.

The same numbers under other names: `transformer_layer_config` holds the decoder layer, the head's
own keys lie beside it, `speculators_config` says for which target ("verifier" there) and how it
proposes; `midlayer` is called `layers.0`. What one side has no place for is said, and what would
compute something else is refused. Layout: https://github.com/vllm-project/speculators, its
`Eagle3SpeculatorConfig` and `Eagle3DraftModel`, as of 0.9.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry.configs import architecture_of, is_speculators, whole
from registry.errors import FolderError
from registry.folders import config_of, json_of, names_code, weights_of
from registry.rewriting import Made, write_tensors
from registry.tensors import Tensor
from registry.weights import EMBEDDINGS

VERSION = "0.9.0"  # of the layout that is written
TYPE = "eagle3"
HEAD = "LlamaForCausalLMEagle3"  # the architecture of a head here
OURS, THEIRS = "midlayer.", "layers.0."
PROJECTIONS = (
    *("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
    *("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
)
NORMS = ("input_layernorm", "hidden_norm", "post_attention_layernorm")
LEARNED = {f"{OURS}{name}.weight" for name in (*PROJECTIONS, *NORMS)}
LEARNED |= {"fc.weight", "norm.weight", "lm_head.weight"}
MAPS = {"d2t", "t2d"}
COPIED = {"verifier_lm_head.weight", "verifier_norm.weight"}  # the target's, kept to train with
OWN_KEYS = ("draft_vocab_size", "eagle_aux_hidden_state_layer_ids", "target_hidden_size")
# Switches of theirs that make the head compute what ours does not.
SWITCHES = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
PLAIN = {  # of the decoder layer: the only value that ours computes, which is what unsaid means too
    "model_type": "llama",
    "num_hidden_layers": 1,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "sliding_window": None,
}


@dataclass(frozen=True, slots=True)
class Carried:
    """A folder that was written, and what of the other layout has no place in it."""

    folder: Path
    left: tuple[str, ...]


def to_speculators(
    draft: Path, into: Path, *, target: str, draft_len: int, weights: Path | None = None
) -> Carried:
    """Write the head in `draft` into the folder `into`, in the layout of `speculators`.

    `target` is what the head's target is called there: a hub's name or a place. `weights` is its
    folder, from which the embedding is written beside the head, as their library saves it: without
    it that library did not always take the target's. `FolderError` for what is no head.
    """
    config = config_of(draft)
    if architecture_of(config, draft) != HEAD:
        raise FolderError(
            f"{draft}: is a {architecture_of(config, draft)}; only heads ({HEAD}) have a place in "
            "the speculators layout. Export it as a Hugging Face folder, which it is"
        )
    tensors = weights_of(draft)
    _check_names(draft, tensors, LEARNED | MAPS)
    layer = {k: v for k, v in config.items() if k not in (*OWN_KEYS, "architectures")}
    written = {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": TYPE,
        "speculators_version": VERSION,
        "speculators_config": {
            "algorithm": TYPE,
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": draft_len}],
            "verifier": {
                "name_or_path": target,
                "architectures": [] if weights is None else config_of(weights)["architectures"],
            },
        },
        "transformer_layer_config": {"model_type": "llama", **layer},
        **{key: config.get(key) for key in OWN_KEYS},
        **dict.fromkeys(SWITCHES, False),
        "tie_word_embeddings": False,
        "dtype": config.get("dtype"),
    }
    left = [
        "the layout names its target and cannot say which release of it: pair.json, where it lies "
        "beside, does",
        "it has no place for the verdict, the context that was judged, and how the draft was made",
    ]
    read = config.get("eagle_aux_hidden_state_layer_ids")
    if isinstance(read, list) and len(set(map(str, read))) != len(read):
        left.append(f"it reads a layer twice ({read}), which its library refuses to load")
    reduced = whole(config, "draft_vocab_size", draft) != whole(config, "vocab_size", draft)
    if not reduced and any(any(piece) for piece in tensors["d2t"].chunks()):
        raise FolderError(f"{draft}: its d2t reorders a whole vocabulary, which the layout cannot")
    kept = {name: tensor for name, tensor in tensors.items() if reduced or name not in MAPS}
    renamed = {name.replace(OURS, THEIRS, 1): tensor for name, tensor in kept.items()}
    if weights is None:
        left.append(
            "the target's embedding is not here to be written beside: vLLM takes the target's own, "
            "the speculators library wants it in the file"
        )
    else:
        renamed["embed_tokens.weight"] = _embedding(weights, config, draft)
    _write(into, written, renamed)
    return Carried(into, tuple(left))


def _embedding(target: Path, config: Mapping[str, Any], draft: Path) -> Tensor:
    """The embedding that the head of this configuration reads."""
    found = [tensor for name, tensor in weights_of(target).items() if name.endswith(EMBEDDINGS)]
    wanted = (whole(config, "vocab_size", draft), whole(config, "hidden_size", draft))
    if len(found) != 1 or found[0].shape != wanted:
        shapes = ", ".join(str(list(tensor.shape)) for tensor in found) or "none"
        raise FolderError(f"{target}: has the embedding {shapes}, {draft} reads {list(wanted)}")
    return found[0]


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
    _check_names(source, {**tensors, **maps}, LEARNED | MAPS)
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
    _write(into, written, {**tensors, **maps})
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


def _check_names(folder: Path, found: Mapping[str, object], wanted: set[str]) -> None:
    if missing := sorted(wanted - found.keys()):
        raise FolderError(f"{folder}: has no {missing[0]}, which every head here has")
    if more := sorted(found.keys() - wanted):
        raise FolderError(f"{folder}: holds {more[0]}, which no head here has a place for")


def _write(into: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor | Made]) -> None:
    into.mkdir(parents=True, exist_ok=True)
    write_tensors(into / "model.safetensors", tensors)
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    (into / "config.json").write_text(text, encoding="utf-8")
