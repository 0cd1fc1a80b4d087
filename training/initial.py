"""Where a head's training starts: at the target's own weights, or at an earlier head."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from speculation.head import Head, head_config
from speculation.target import Target


def fresh_head(target: Target, token_ids: Tensor) -> Head:
    """A head that starts from `target`: its last layer, final norm and output rows.

    The half of the attention that reads the token embedding starts small and random, since the
    target has nothing like it.
    """
    head = Head(head_config(target, draft_vocab=len(token_ids)))
    head.choose_tokens(token_ids)
    nn.init.normal_(head.fc.weight, std=0.002)
    hidden = head.config.hidden_size
    decoder = target.model.get_decoder()  # type: ignore[operator]  # nn.Module's __getattr__ hides transformers' method
    last = decoder.layers[-1]
    with torch.no_grad():
        head.fc.weight[:, -hidden:] += torch.eye(hidden)  # pass the high states through
        head.lm_head.weight.copy_(output_rows(target, token_ids))
        head.norm.weight.copy_(decoder.norm.weight)
        layer = head.midlayer
        layer.hidden_norm.weight.copy_(last.input_layernorm.weight)
        layer.input_layernorm.weight.copy_(decoder.layers[0].input_layernorm.weight)
        layer.post_attention_layernorm.weight.copy_(last.post_attention_layernorm.weight)
        for name in ("q_proj", "k_proj", "v_proj"):
            mine = getattr(layer.self_attn, name).weight
            nn.init.normal_(mine, std=0.02)
            mine[:, hidden:] = getattr(last.self_attn, name).weight
        layer.self_attn.o_proj.weight.copy_(last.self_attn.o_proj.weight)
        for name in ("gate_proj", "up_proj", "down_proj"):
            getattr(layer.mlp, name).weight.copy_(getattr(last.mlp, name).weight)
    return head


def warm_head(start: Head, target: Target, token_ids: Tensor) -> Head:
    """The head `start` for the draft vocabulary `token_ids`; new tokens get the target's rows."""
    config = head_config(target, draft_vocab=len(token_ids))
    head = Head(config)
    kept = {
        k: v for k, v in start.state_dict().items() if k not in ("d2t", "t2d", "lm_head.weight")
    }
    head.load_state_dict(kept, strict=False)
    head.choose_tokens(token_ids)
    with torch.no_grad():
        head.lm_head.weight.copy_(output_rows(target, token_ids))
        known = start.t2d[token_ids]
        old_place = torch.full((len(start.t2d),), -1)
        old_place[start.token_ids] = torch.arange(len(start.d2t))
        head.lm_head.weight[known] = start.lm_head.weight[old_place[token_ids[known]]].float()
    return head


def output_rows(target: Target, token_ids: Tensor) -> Tensor:
    """The target's output embeddings of `token_ids`, float32."""
    weight: Tensor = target.model.get_output_embeddings().weight  # type: ignore[operator]  # as above
    return weight[token_ids].float()


def frequent_tokens(mass: Tensor, count: int) -> Tensor:
    """The `count` tokens with the most of the target's probability, as ascending ids."""
    return mass.topk(min(count, len(mass))).indices.sort().values
