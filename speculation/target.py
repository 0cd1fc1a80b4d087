"""A target model: its forward over a row cache, its logits, and the hidden states that heads read.

Knows torch and transformers' decoder-only models; knows token ids and nothing of text. Weights are
read from safetensors only, and no code that comes with a model is ever run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from speculation.architectures import Architecture, architecture_of
from speculation.architectures import ModelFolderError as ModelFolderError
from speculation.architectures import read_config as read_config
from speculation.attention import register
from speculation.cache import ROOM, RowCache
from speculation.decoder import Layout, layout_of, without_decoder
from speculation.lora import Adapters
from speculation.lora_folder import read_adapter

MOST_PARAMETERS_A_BYTE = 4  # two in four bits; what is stored of a whole model is well below it
DTYPES = {"auto": None, "float32": torch.float32, "bfloat16": torch.bfloat16}


def feature_layers(layer_count: int) -> tuple[int, int, int]:
    """The decoder layers whose inputs a head reads: low, middle and high, as vLLM takes them."""
    return (min(2, layer_count - 1), layer_count // 2, max(layer_count - 3, 0))


@dataclass
class Target:
    """A loaded target. `vocab_size` is the logits' width, which may exceed the token table."""

    model: nn.Module
    device: torch.device
    dtype: torch.dtype
    architecture: Architecture
    layout: Layout

    def __post_init__(self) -> None:
        self._decoder: Any = self.model.get_decoder()  # type: ignore[operator]  # nn.Module's __getattr__ hides transformers' methods
        self._last: Any = without_decoder(self.model)
        self._adapters = Adapters(self.model)

    @property
    def config(self) -> Any:
        """The configuration of the language model, also where others surround it."""
        return self.model.config.get_text_config(decoder=True)  # type: ignore[union-attr,operator]  # as above

    @property
    def vocab_size(self) -> int:
        return int(self.config.vocab_size)

    @property
    def embedding(self) -> Tensor:
        """The input embeddings [V, H], as stored: Gemma's are scaled inside its forward."""
        weight = self.model.get_input_embeddings().weight  # type: ignore[operator]  # as above
        assert isinstance(weight, Tensor)
        return weight

    def new_cache(self, *, rows: int, max_len: int) -> RowCache:
        """Memory for `rows` sequences of `max_len` tokens. Raises ModelFolderError."""
        longest = self.architecture.longest
        if longest is not None and max_len + ROOM > longest:
            raise ModelFolderError(
                f"a context of {max_len} tokens: this {self.architecture.name} model changes its "
                f"rotary frequencies beyond {longest} positions, which a cache cannot follow; set "
                f"a context of at most {longest - ROOM}"
            )
        return RowCache(
            layers=self.layout.layers,
            rows=rows,
            heads=self.layout.heads,
            max_len=max_len,
            head_dim=self.layout.key_dim,
            value_dim=self.layout.value_dim,
            dtype=self.dtype,
            device=self.device,
        )

    @property
    def adapters(self) -> tuple[str, ...]:
        """Names of the loaded adapters."""
        return self._adapters.names

    def load_adapter(self, name: str, folder: Path) -> None:
        """Serve the LoRA adapter in `folder` as `name`, in the target's dtype.

        Raises ModelFolderError for one that does not fit, ValueError for a name that is taken.
        Neither this nor `unload_adapter` may run while a forward does.
        """
        self._adapters.add(name, read_adapter(folder, self.model))

    def unload_adapter(self, name: str) -> None:
        """Forget the adapter `name`. Raises ValueError for an unknown one."""
        self._adapters.remove(name)

    def forward(
        self,
        ids: Tensor,
        positions: Tensor,
        cache: RowCache,
        rows: Sequence[int],
        adapters: Sequence[str | None] | None = None,
        read: Sequence[int] = (),
    ) -> tuple[Tensor, Tensor | None]:
        """Last hidden states [B, T, H], and the inputs of the decoder layers `read`, side by side.

        `ids` and `positions` are [B, T]; padding at a row's end is harmless, it is never attended.
        `adapters` names each row's adapter, None for the target itself. Raises ValueError for a
        name that is not loaded. Where a position's states are not finite, those of others are as if
        they were.
        """
        with self._reading(read) as inputs:
            if adapters is None or not any(adapters):
                hidden = self._guarded(ids, positions, cache, rows)
            else:
                assert len(adapters) == len(rows)
                with self._adapters.chosen(adapters):
                    hidden = self._guarded(ids, positions, cache, rows)
            if not read:
                return hidden, None
            return hidden, torch.cat([inputs[layer] for layer in read], dim=-1)

    def check_layers(self, read: Sequence[int]) -> None:
        """Raises ValueError for a layer that `forward` cannot read."""
        layers = self.layout.layers
        if beyond := [layer for layer in read if not 0 <= layer < layers]:
            raise ValueError(f"layer {beyond[0]} is to be read: this target has {layers}")

    @contextmanager
    def _reading(self, layers: Sequence[int]) -> Iterator[dict[int, Tensor]]:
        """The inputs of `layers` by layer, as the latest forward inside had them.

        Hooks live as long as one forward: engines of several drafts share one target, and what
        nobody reads any more costs nothing.
        """
        inputs: dict[int, Tensor] = {}

        def keep(layer: int) -> Any:
            def hook(_: nn.Module, given: tuple[Tensor, ...]) -> None:
                inputs[layer] = given[0]

            return hook

        modules = self._decoder.layers
        hooks = [modules[layer].register_forward_pre_hook(keep(layer)) for layer in set(layers)]
        try:
            yield inputs
        finally:
            for hook in hooks:
                hook.remove()

    def _guarded(
        self, ids: Tensor, positions: Tensor, cache: RowCache, rows: Sequence[int]
    ) -> Tensor:
        """The forward, once more where it stored what hurts others.

        A position attends to itself, so one that stored NaN or infinity is not finite at the end.
        """
        hidden = self._run(ids, positions, cache, rows)
        if bool(torch.isfinite(hidden.sum(dtype=torch.float32))):
            return hidden
        cache.finite = True
        try:
            return self._run(ids, positions, cache, rows)
        finally:
            cache.finite = False

    def _run(self, ids: Tensor, positions: Tensor, cache: RowCache, rows: Sequence[int]) -> Tensor:
        causal = cache.begin(rows, positions)
        masks = {
            kind: causal if window is None else cache.windowed(window)
            for kind, window in self.architecture.windows.items()
        }
        hidden: Tensor = self._decoder(
            input_ids=ids,
            position_ids=positions,
            # A model whose layers are all of one kind takes the mask itself.
            attention_mask=masks if len(masks) > 1 else next(iter(masks.values())),
            cache=cache,
            use_cache=True,
        ).last_hidden_state
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [..., V] of last hidden states [..., H], in the model's dtype."""
        flat = hidden.reshape(1, -1, hidden.shape[-1])
        logits: Tensor = self._last(inputs_embeds=flat, use_cache=False).logits
        return logits.view(*hidden.shape[:-1], logits.shape[-1])


def load_target(folder: Path, *, dtype: str = "auto", device: str = "cpu") -> Target:
    """Load the Hugging Face directory `folder`. Raises ModelFolderError."""
    architecture = architecture_of(folder)
    if not any(folder.glob("*.safetensors")):
        raise ModelFolderError(
            f"{folder} holds no .safetensors file: wanted a Hugging Face model folder with its "
            "weights; save the model with save_pretrained() and give that folder"
        )
    if dtype not in DTYPES:
        raise ModelFolderError(f"dtype {dtype!r}: wanted one of {', '.join(DTYPES)}")
    from transformers import AutoModelForCausalLM

    try:
        _check_size(folder)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=DTYPES[dtype] or "auto",
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            attn_implementation=register(),
            output_loading_info=True,
        )
    except Exception as error:  # transformers and safetensors raise many kinds for a bad folder
        raise ModelFolderError(f"{folder} could not be loaded: {error}") from error
    model, told = loaded
    if missing := sorted(told["missing_keys"]):  # transformers draws them at random and goes on
        raise ModelFolderError(
            f"{folder} lacks {missing[0]} ({len(missing)} such): copy the model again, all of it"
        )
    model.to(torch.device(device))
    if torch.device(device).type == "cpu":  # elsewhere they have just been copied
        _own(model)
    model.eval().requires_grad_(False)
    layout = layout_of(model, architecture)
    return Target(model, torch.device(device), next(model.parameters()).dtype, architecture, layout)


def _own(model: Any) -> None:
    """Copy the weights that are still views of the file, one by one: whatever happens to it later,
    written over in place or cut short, must change no answer and end no process."""
    for tensor in (*model.parameters(), *model.buffers()):  # a shared one is there once
        tensor.data = tensor.data.clone()


def _check_size(folder: Path) -> None:
    """Raises ValueError where config.json names a model far larger than what is stored: one number
    in it must not ask for all of a host's memory."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    stored = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    if parameters > MOST_PARAMETERS_A_BYTE * stored:
        raise ValueError(
            f"its config.json names {parameters:,} parameters, and {stored:,} bytes are stored"
        )
