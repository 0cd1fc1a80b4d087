"""A model folder as files: which ones hold the weights, and whether they may be trusted.

Names found inside a folder (an index, a registry's list) are confined to it. Knows nothing of
what the weights mean.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from registry.errors import FolderError
from registry.tensors import Tensor, tensors_of

JSON_LIMIT_BYTES = 200_000_000  # the largest tokenizer.json in use is a tenth of it
MOST_LEVELS = 64  # of nesting; configurations in use have about eight
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
ADAPTER = "adapter_model.safetensors"
MAY_NAME_CODE = (
    *("config.json", "tokenizer_config.json", "generation_config.json"),
    *("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json"),
)
OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".ckpt")


def confined(folder: Path, name: object) -> Path:
    """The file `name` of `folder`. `FolderError` where it lies, or leads, outside.

    A link may lead into the blobs of the Hugging Face cache that the folder is a snapshot of: that
    is how the hub client stores every file.
    """
    if (
        not isinstance(name, str)
        or not name
        or "/" in name
        or "\\" in name
        or "\0" in name
        or name in {".", ".."}
    ):
        raise FolderError(f"{folder}: got the file name {name!r}, wanted a plain name inside it")
    path = folder / name
    if path.is_symlink():
        home = folder.resolve()
        try:
            leads_to = path.resolve(strict=True).parent
        except (OSError, RuntimeError) as error:  # RuntimeError: Python 3.11's word for a loop
            raise FolderError(f"{path}: is a link that leads nowhere: copy the file") from error
        blobs = home.parent.parent / "blobs" if home.parent.name == "snapshots" else home
        if leads_to not in {home, blobs}:
            raise FolderError(
                f"{path}: is a link that leads outside, to {path.resolve()}: copy the file instead"
            )
    return path


def json_of(folder: Path, name: str) -> dict[str, Any] | None:
    """The JSON object in a file of the folder, None where there is no such file."""
    path = confined(folder, name)
    if not path.is_file():  # neither a folder nor a pipe is read
        return None
    try:
        if path.stat().st_size > JSON_LIMIT_BYTES:
            raise FolderError(f"{path}: got more than {JSON_LIMIT_BYTES} bytes of JSON")
        read = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FolderError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise FolderError(f"{path}: is not JSON: {error}") from error
    if not isinstance(read, dict):
        raise FolderError(f"{path}: got {type(read).__name__}, wanted a JSON object")
    if deeper_than(MOST_LEVELS, read):
        raise FolderError(f"{path}: got JSON nested deeper than {MOST_LEVELS} levels")
    return read


def deeper_than(levels: int, value: Any) -> bool:
    """Whether lists and objects are nested deeper, found without recursion."""
    layer: list[Any] = [value]
    for _ in range(levels):
        inner = (one.values() if isinstance(one, dict) else one for one in layer)
        layer = [each for held in inner for each in held if isinstance(each, dict | list)]
        if not layer:
            return False
    return True


def config_of(folder: Path) -> dict[str, Any]:
    """The folder's config.json. Refuses `auto_map`: it names code to run, and none is run."""
    if not folder.is_dir():
        raise FolderError(f"{folder}: got no folder, wanted one with config.json and safetensors")
    config = json_of(folder, "config.json")
    if config is None:
        raise FolderError(f"{folder}: has no config.json: is this a Hugging Face model folder?")
    for name in MAY_NAME_CODE:
        if names_code(config if name == "config.json" else json_of(folder, name)):
            raise FolderError(
                f"{folder / name}: has an auto_map, which would run code from the folder. Paceline "
                "never does; use a model whose architecture transformers knows"
            )
    return config


def names_code(value: object) -> bool:
    """Whether an `auto_map` occurs anywhere inside."""
    if isinstance(value, Mapping):
        return "auto_map" in value or any(names_code(inner) for inner in value.values())
    return isinstance(value, list) and any(names_code(inner) for inner in value)


def weights_of(folder: Path) -> dict[str, Tensor]:
    """All tensors of a model folder by name, whatever files they are spread over."""
    index = json_of(folder, INDEX)
    if index is None:
        return _of_one_file(folder, SINGLE)
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise FolderError(f"{folder / INDEX}: has no weight_map")
    found: dict[str, Tensor] = {}
    for name in sorted(set(map(str, weight_map.values()))):
        shard = confined(folder, name)
        if not shard.is_file():
            raise FolderError(f"{shard}: is named by {INDEX} and missing. Copy the folder again")
        tensors = tensors_of(shard)
        if twice := sorted(found.keys() & tensors.keys()):
            raise FolderError(f"{shard}: tensor {twice[0]!r} is in another file too")
        found |= tensors
    for name, shard_name in sorted(weight_map.items()):
        if name not in found or found[name].path.name != shard_name:
            raise FolderError(f"{folder / INDEX}: says {name!r} is in {shard_name}; it is not")
    if (folder / SINGLE).exists() and SINGLE not in weight_map.values():
        # loaders choose between them, and not all the same: what is identified must be what loads
        raise FolderError(f"{folder}: holds {SINGLE} and {INDEX}, two sets of weights: remove one")
    return found


def adapter_weights_of(folder: Path) -> dict[str, Tensor]:
    """All tensors of a PEFT adapter folder by name."""
    return _of_one_file(folder, ADAPTER)


def _of_one_file(folder: Path, name: str) -> dict[str, Tensor]:
    path = confined(folder, name)
    if path.is_file():
        return tensors_of(path)
    others = sorted(p.name for p in folder.iterdir() if p.suffix in OTHER_WEIGHTS)
    got = f"got {', '.join(others[:3])}" if others else "got no weights at all"
    raise FolderError(
        f"{folder}: {got}, wanted {name}"
        + (f" or {INDEX}" if name == SINGLE else "")
        + ". Save the model with save_pretrained (safetensors is its default)"
    )
