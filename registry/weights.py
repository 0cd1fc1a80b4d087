"""The weights of a target: its tensors, and the digest of what they hold.

Where embeddings are tied, an output layer equal to them is the same tensor written twice and is
left out. Knows which names those two have; knows nothing of adapters or tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from registry.cache import DigestCache
from registry.configs import text_config, ties_embeddings
from registry.digests import Progress, content_digests, digest_of_contents, no_progress
from registry.errors import FolderError
from registry.folders import config_of, weights_of
from registry.tensors import Tensor

EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight")
OUTPUTS = ("lm_head.weight", "embed_out.weight")
WIDTHS = ("word_embed_proj_dim", "hidden_size", "n_embd", "d_model")  # of an embedding; first told
MORE_ROWS = {"mllama_text_model": 8}  # for pictures, in the embedding alone
PLAIN = ("F64", "F32", "F16", "BF16")  # packed weights have shapes of their own


@dataclass(frozen=True, slots=True)
class Weights:
    """Tensors by name and the digest of their content, each read once."""

    tensors: dict[str, Tensor]
    digest: str


def read_weights(
    folder: Path, *, progress: Progress = no_progress, cache: DigestCache | None = None
) -> Weights:
    """The weights of the target in `folder`. `FolderError` for an output layer that is tied by
    config.json and unequal to the embeddings, and as `shaped_weights_of`."""
    tensors = shaped_weights_of(folder)
    contents = content_digests(tensors, what=folder.name, progress=progress, cache=cache)
    twin = _twin(folder, tensors, lambda one, two: contents[one.name] == contents[two.name])
    kept = {name: tensor for name, tensor in tensors.items() if name != twin}
    return Weights(kept, digest_of_contents({name: contents[name] for name in kept}))


def target_weights_of(folder: Path) -> dict[str, Tensor]:
    """The tensors alone, of which no more is read than tells whether an output layer is a twin."""
    tensors = shaped_weights_of(folder)
    twin = _twin(folder, tensors, Tensor.equals)
    return {name: tensor for name, tensor in tensors.items() if name != twin}


def shaped_weights_of(folder: Path) -> dict[str, Tensor]:
    """The tensors, of which only headers are read. `FolderError` where the rows of an embedding or
    an output layer are not the `vocab_size` of config.json, or their width is not its hidden size,
    and as `weights_of`: what config.json says of them is believed from here on."""
    tensors = weights_of(folder)
    config = text_config(config_of(folder))
    for name, tensor in tensors.items():
        if not name.endswith((*EMBEDDINGS, *OUTPUTS)) or tensor.dtype not in PLAIN:
            continue
        if len(tensor.shape) != 2:
            raise FolderError(f"{folder}: {name} is {list(tensor.shape)}, wanted rows and columns")
        key = next((key for key in WIDTHS if type(config.get(key)) is int), "")
        for axis, what, told in ((0, "rows", "vocab_size"), (1, "columns", key)):
            got, wanted = tensor.shape[axis], config.get(told)
            more = MORE_ROWS.get(str(config.get("model_type")), 0) if axis == 0 else 0
            allowed = (wanted, wanted + more) if type(wanted) is int else (got,)
            if got not in allowed:
                raise FolderError(
                    f"{folder}: {name} has {got} {what}, wanted {wanted}, the {told} of "
                    "config.json: no library loads the two together. Save the model again"
                )
    return tensors


def _twin(
    folder: Path, tensors: dict[str, Tensor], same: Callable[[Tensor, Tensor], bool]
) -> str | None:
    """The name of the output layer that is the embedding again; None where there is none."""
    outputs = [tensor for name, tensor in tensors.items() if name.endswith(OUTPUTS)]
    if len(outputs) != 1 or not ties_embeddings(config_of(folder)):
        return None
    embeddings = [tensor for name, tensor in tensors.items() if name.endswith(EMBEDDINGS)]
    if len(embeddings) != 1 or not same(embeddings[0], outputs[0]):
        raise FolderError(
            f"{folder}: config.json ties the embeddings, but {outputs[0].name} differs from them. "
            "Set tie_word_embeddings to false, or save the model again"
        )
    return outputs[0].name
