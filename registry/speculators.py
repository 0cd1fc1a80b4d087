"""Draft heads in the layout of the `speculators` project, which vLLM loads as well; the way back is
in `speculators_read`.

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

from registry.configs import architecture_of, whole
from registry.errors import FolderError
from registry.folders import config_of, weights_of
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
OWN_KEYS = ("draft_vocab_size", "eagle_aux_hidden_state_layer_ids", "target_hidden_size")
# Switches of theirs that make the head compute what ours does not.
SWITCHES = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")


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
    check_names(draft, tensors, LEARNED | MAPS)
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
    write_draft(into, written, renamed)
    return Carried(into, tuple(left))


def _embedding(target: Path, config: Mapping[str, Any], draft: Path) -> Tensor:
    """The embedding that the head of this configuration reads."""
    found = [tensor for name, tensor in weights_of(target).items() if name.endswith(EMBEDDINGS)]
    wanted = (whole(config, "vocab_size", draft), whole(config, "hidden_size", draft))
    if len(found) != 1 or found[0].shape != wanted:
        shapes = ", ".join(str(list(tensor.shape)) for tensor in found) or "none"
        raise FolderError(f"{target}: has the embedding {shapes}, {draft} reads {list(wanted)}")
    return found[0]


def check_names(folder: Path, found: Mapping[str, object], wanted: set[str]) -> None:
    if missing := sorted(wanted - found.keys()):
        raise FolderError(f"{folder}: has no {missing[0]}, which every head here has")
    if more := sorted(found.keys() - wanted):
        raise FolderError(f"{folder}: holds {more[0]}, which no head here has a place for")


def write_draft(
    into: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor | Made]
) -> None:
    into.mkdir(parents=True, exist_ok=True)
    write_tensors(into / "model.safetensors", tensors)
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    (into / "config.json").write_text(text, encoding="utf-8")
