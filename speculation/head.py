"""The EAGLE-3 style head: one decoder layer over the target's hidden states and the next token.

Li et al. 2025 (arXiv 2503.01840). Row t of the head reads the target's low, middle and high hidden
states at position t and the embedding of token t + 1, and proposes token t + 2. Where no target
state exists yet (while drafting), the head's own output stands in for it.

The parameter names and `config.json` are those that vLLM loads as `LlamaForCausalLMEagle3`. The
token embedding is the target's and is not stored; the output layer covers a reduced vocabulary,
with `d2t` (draft id -> target id minus draft id) and `t2d` (which target ids the draft has).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import (
    LlamaMLP,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
    rotate_half,
)

from speculation.attention import grouped
from speculation.cache import MOST_DRAFTED, RowCache
from speculation.target import ModelFolderError, Target, feature_layers, read_config

ARCHITECTURE = "LlamaForCausalLMEagle3"
MOST_POSITIONS = 2**20  # of a context; its tables of cosines and sines are made whole


class HeadConfig(LlamaConfig):
    """A Llama configuration with what vLLM adds to it for EAGLE-3."""

    num_key_value_heads: int
    head_dim: int
    draft_vocab_size: int
    eagle_aux_hidden_state_layer_ids: list[int]


class HeadAttention(nn.Module):
    """Attention whose queries, keys and values read 2H: normed embedding beside normed state."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        width, kv_width = config.num_attention_heads * self.head_dim, self.kv_width(config)
        self.q_proj = nn.Linear(2 * config.hidden_size, width, bias=False)
        self.k_proj = nn.Linear(2 * config.hidden_size, kv_width, bias=False)
        self.v_proj = nn.Linear(2 * config.hidden_size, kv_width, bias=False)
        self.o_proj = nn.Linear(width, config.hidden_size, bias=False)

    @staticmethod
    def kv_width(config: HeadConfig) -> int:
        return int(config.num_key_value_heads * config.head_dim)

    def split(self, projected: Tensor) -> Tensor:
        """[B, T, n * D] as [B, n, T, D]."""
        split: Tensor = projected.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        return split


class HeadLayer(nn.Module):
    """The one decoder layer."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.self_attn = HeadAttention(config)
        self.mlp = LlamaMLP(config)
        self.input_layernorm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.hidden_norm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)

    def mixed(self, embedded: Tensor, state: Tensor) -> Tensor:
        """What the attention reads [B, T, 2H]."""
        return torch.cat([self.input_layernorm(embedded), self.hidden_norm(state)], dim=-1)

    def finish(self, attended: Tensor, state: Tensor) -> Tensor:
        """The layer's output [B, T, H] from its attention's [B, n, T, D] and the residual."""
        joined = attended.transpose(1, 2).flatten(2)
        after = state + self.self_attn.o_proj(joined)
        output: Tensor = after + self.mlp(self.post_attention_layernorm(after))
        return output


class Head(nn.Module):
    """An EAGLE-3 style draft head. `config.draft_vocab_size` is its output's width."""

    d2t: Tensor  # [draft vocabulary] target id minus draft id
    t2d: Tensor  # [V] whether the draft has this target id
    cos: Tensor  # [positions, D] float32, rotary tables: a step is too short to make them anew
    sin: Tensor

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config
        hidden, draft_vocab = config.hidden_size, config.draft_vocab_size
        self.fc = nn.Linear(3 * hidden, hidden, bias=False)
        self.midlayer = HeadLayer(config)
        self.norm = LlamaRMSNorm(hidden, config.rms_norm_eps)
        self.lm_head = nn.Linear(hidden, draft_vocab, bias=False)
        self.register_buffer("d2t", torch.zeros(draft_vocab, dtype=torch.long))
        self.register_buffer("t2d", torch.zeros(config.vocab_size, dtype=torch.bool))
        cos, sin = rotary_table(config)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    @property
    def token_ids(self) -> Tensor:
        """The target id of each draft id [draft vocabulary], ascending."""
        return torch.arange(len(self.d2t), device=self.d2t.device) + self.d2t

    def choose_tokens(self, token_ids: Tensor) -> None:
        """Make the sorted target ids [draft vocabulary] the head's vocabulary."""
        self.d2t.copy_(token_ids - torch.arange(len(token_ids), device=token_ids.device))
        self.t2d.zero_()
        self.t2d[token_ids] = True

    def rotate(self, states: Tensor, positions: Tensor) -> Tensor:
        """Rotary positions [B, T] applied to [B, n, T, D]."""
        cos = self.cos[positions][:, None].to(states.dtype)
        sin = self.sin[positions][:, None].to(states.dtype)
        rotated: Tensor = states * cos + rotate_half(states) * sin
        return rotated

    def step(
        self,
        embedded: Tensor,  # [B, T, H] of the tokens after each position
        state: Tensor,  # [B, T, H]: fc of the target's states, or the head's own last output
        positions: Tensor,  # [B, T]
        cache: RowCache,
        rows: Sequence[int],
    ) -> Tensor:  # [B, T, H], the next state before the final norm
        mask = cache.begin(rows, positions)
        layer, attention = self.midlayer, self.midlayer.self_attn
        mixed = layer.mixed(embedded, state)
        query = self.rotate(attention.split(attention.q_proj(mixed)), positions)
        key = self.rotate(attention.split(attention.k_proj(mixed)), positions)
        key, value = cache.update(key, attention.split(attention.v_proj(mixed)), 0)
        attended = grouped(query, key, value, mask, scaling=attention.head_dim**-0.5)
        return layer.finish(attended, state)

    def logits(self, state: Tensor) -> Tensor:
        """Logits over the draft vocabulary [..., draft vocabulary] of states [..., H]."""
        logits: Tensor = self.lm_head(self.norm(state))
        return logits

    def new_cache(self, *, rows: int, max_len: int) -> RowCache:
        return RowCache(
            layers=1,
            rows=rows,
            heads=self.config.num_key_value_heads,
            max_len=max_len,
            head_dim=self.config.head_dim,
            dtype=self.lm_head.weight.dtype,
            device=self.lm_head.weight.device,
        )


def rotary_table(config: HeadConfig) -> tuple[Tensor, Tensor]:
    """Cosines and sines of every position that a cache may hold, [positions, D] float32."""
    positions = torch.arange(config.max_position_embeddings + 2 * MOST_DRAFTED + 2)[None]
    rotary = LlamaRotaryEmbedding(config)
    cos, sin = rotary(torch.zeros((), dtype=torch.float32), position_ids=positions)
    return cos[0], sin[0]


def head_config(target: Target, *, draft_vocab: int) -> HeadConfig:
    """The configuration of a head for `target`."""
    source = target.config
    heads = source.num_attention_heads
    return HeadConfig(
        architectures=[ARCHITECTURE],
        hidden_size=source.hidden_size,
        intermediate_size=source.intermediate_size,
        num_hidden_layers=1,
        num_attention_heads=heads,
        num_key_value_heads=source.num_key_value_heads or heads,
        head_dim=getattr(source, "head_dim", None) or source.hidden_size // heads,
        max_position_embeddings=source.max_position_embeddings,
        rms_norm_eps=source.rms_norm_eps,
        rope_parameters=dict(source.rope_parameters),
        vocab_size=target.vocab_size,
        draft_vocab_size=min(draft_vocab, target.vocab_size),
        tie_word_embeddings=False,
        eagle_aux_hidden_state_layer_ids=list(feature_layers(source.num_hidden_layers)),
    )


def save_head(head: Head, folder: Path) -> None:
    """Write `folder`/config.json and model.safetensors, in the head's own dtype."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {
        **head.config.to_dict(),
        "dtype": str(head.lm_head.weight.dtype).removeprefix("torch."),
    }
    (folder / "config.json").write_text(json.dumps(written, indent=2, sort_keys=True) + "\n")
    tensors = {name: tensor.contiguous() for name, tensor in head.state_dict().items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def load_head(folder: Path, *, dtype: torch.dtype, device: torch.device) -> Head:
    """Read what `save_head` wrote. Raises ModelFolderError."""
    config = read_config(folder)
    if config.get("architectures") != [ARCHITECTURE]:
        raise ModelFolderError(
            f"{folder}/config.json names {config.get('architectures')}: wanted a draft head, "
            f"[{ARCHITECTURE!r}]"
        )
    try:
        tensors = load_file(folder / "model.safetensors")
    except (FileNotFoundError, SafetensorError) as error:
        raise ModelFolderError(f"{folder}/model.safetensors cannot be read: {error}") from error
    head = Head(_fitting(folder, config, tensors))
    head.load_state_dict(tensors)
    head = head.to(device).eval().requires_grad_(False)
    for module in (head.fc, head.midlayer, head.norm, head.lm_head):
        module.to(dtype)
    return head


def _fitting(folder: Path, config: dict[str, Any], tensors: Mapping[str, Tensor]) -> HeadConfig:
    """The configuration, once the head it names is seen to be the one that is stored.

    Its sizes are believed only then: one number in a file must not ask for all of a host's memory.
    """
    try:
        read = HeadConfig(**config)
        positions = read.max_position_embeddings
        if not 0 < positions <= MOST_POSITIONS:
            raise ValueError(f"{positions} positions: wanted 1 to {MOST_POSITIONS}")
        with torch.device("meta"):
            wanted = {name: tuple(one.shape) for name, one in Head(read).state_dict().items()}
    except Exception as error:  # transformers and torch raise many kinds for impossible sizes
        raise ModelFolderError(f"{folder}/config.json can be no head's: {error}") from error
    found = {name: tuple(one.shape) for name, one in tensors.items()}
    for name in sorted(wanted.keys() | found.keys()):
        if found.get(name) != wanted.get(name):
            raise ModelFolderError(
                f"{folder} does not hold the head its config names: {name} is "
                f"{found.get(name, 'missing')}, wanted {wanted.get(name, 'nothing of that name')}"
            )
    return read
