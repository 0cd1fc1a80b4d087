"""A head is stored as vLLM's `LlamaForCausalLMEagle3` reads it: names, shapes, maps."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from tests.toys import toy_draft_folder, toy_target_folder


def test_a_head_has_the_names_and_shapes_that_vllm_loads(tmp_path: Path) -> None:
    target = toy_target_folder(tmp_path / "target")
    folder = toy_draft_folder(target, tmp_path / "draft")
    tensors = load_file(folder / "model.safetensors")
    hidden, inner, heads, key_heads, width, draft_vocab = 32, 64, 4, 2, 8, 64
    vocab = json.loads((target / "config.json").read_text())["vocab_size"]
    shapes = {
        "fc.weight": (hidden, 3 * hidden),
        "midlayer.input_layernorm.weight": (hidden,),
        "midlayer.hidden_norm.weight": (hidden,),
        "midlayer.post_attention_layernorm.weight": (hidden,),
        "midlayer.self_attn.q_proj.weight": (heads * width, 2 * hidden),
        "midlayer.self_attn.k_proj.weight": (key_heads * width, 2 * hidden),
        "midlayer.self_attn.v_proj.weight": (key_heads * width, 2 * hidden),
        "midlayer.self_attn.o_proj.weight": (hidden, heads * width),
        "midlayer.mlp.gate_proj.weight": (inner, hidden),
        "midlayer.mlp.up_proj.weight": (inner, hidden),
        "midlayer.mlp.down_proj.weight": (hidden, inner),
        "norm.weight": (hidden,),
        "lm_head.weight": (draft_vocab, hidden),
        "d2t": (draft_vocab,),
        "t2d": (vocab,),
    }
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == shapes
    # d2t holds what is added to a draft id to get the target's; t2d which target ids those are.
    named = torch.arange(draft_vocab) + tensors["d2t"]
    assert torch.equal(tensors["t2d"].nonzero()[:, 0], named)
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert config["draft_vocab_size"] == draft_vocab
    assert len(config["eagle_aux_hidden_state_layer_ids"]) == 3
