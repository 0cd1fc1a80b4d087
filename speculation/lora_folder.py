"""Reading a LoRA adapter's folder as peft saves it: matrices per module, and what is refused.

Knows peft's adapter_config.json and adapter_model.safetensors, and torch; needs no peft. An option
that changes what the adapter computes and is not known here is refused by name, never ignored.
LoRA: Hu et al. 2021 (arXiv 2106.09685); rank stabilised scaling: Kalajdzievski 2023
(arXiv 2312.03732).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from speculation.architectures import ModelFolderError

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."  # peft's wrappers around the model's own names
TENSOR = re.compile(rf"{re.escape(PREFIX)}(?P<module>.+)\.lora_(?P<side>[AB])\.weight")

READ = {  # what the code below goes by
    *("r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "peft_type", "bias"),
    *("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern"),
    "init_lora_weights",
    "modules_to_save",
}
NOT_MEANT = {  # where the adapter was made, how it was trained, settings of options that are off
    *("auto_mapping", "base_model_name_or_path", "inference_mode", "peft_version", "revision"),
    *("task_type", "lora_dropout", "megatron_core", "loftq_config", "eva_config", "runtime_config"),
    *("qalora_group_size", "lora_ga_config"),
}
PLAIN: dict[str, tuple[object, ...]] = {  # what these may be
    "bias": ("none", None),
    "modules_to_save": (None, []),
    # The other starts (pissa, corda, olora, loftq, lora_ga) take a part out of the base's weights,
    # which is lost when only the adapter is saved.
    "init_lora_weights": (True, False, None, "gaussian", "eva", "orthogonal"),
}


@dataclass(frozen=True, slots=True)
class Lora:
    """One module's part of an adapter: it adds `up @ down @ x`."""

    down: Tensor  # [r, in]
    up: Tensor  # [out, r], the scaling multiplied in


def read_adapter(folder: Path, model: nn.Module) -> dict[str, Lora]:
    """The adapter in `folder` by module name of `model`, float32. Raises ModelFolderError."""
    config = adapter_config(folder)
    linear = {name: module for name, module in model.named_modules() if type(module) is nn.Linear}
    output: Any = model.get_output_embeddings()  # type: ignore[operator]  # nn.Module's __getattr__ hides transformers' method
    every = dict(model.named_modules())
    wanted = {name for name in every if name and targeted(config, name)}
    for name in sorted(wanted):
        if every[name] is output or isinstance(every[name], nn.Embedding):
            raise ModelFolderError(
                f"{folder} adapts the embeddings ({name}): only the linear layers inside the "
                "decoder's layers can be adapted; leave it out of target_modules"
            )
        if ".experts." in name:
            raise ModelFolderError(
                f"{folder} adapts {name}: routed experts see tokens of all rows mixed, where each "
                "row's own adapter cannot be told; leave them out of target_modules"
            )
        if name not in linear:
            raise ModelFolderError(
                f"{folder} adapts {name}, a {type(every[name]).__name__}: wanted linear layers"
            )
    found = adapter_tensors(folder)
    compare_names(folder, wanted, found)
    return {
        name: matrices(folder, config, name, sides, linear[name])
        for name, sides in sorted(found.items())
    }


def adapter_config(folder: Path) -> dict[str, Any]:
    """adapter_config.json, all of whose meaning is known here. Raises ModelFolderError."""
    path = folder / CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelFolderError(
            f"{folder} holds no {CONFIG}: wanted a LoRA adapter as peft saves it"
        ) from None
    except (OSError, ValueError) as error:
        raise ModelFolderError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(config, dict):
        raise ModelFolderError(f"{path} holds {type(config).__name__}: wanted a JSON object")
    if config.get("peft_type") != "LORA":
        raise ModelFolderError(f"{path} has peft_type {config.get('peft_type')!r}: wanted 'LORA'")
    for key, plain in PLAIN.items():
        value = config.get(key)
        if value not in plain:
            raise ModelFolderError(f"{path} has {key} {value!r}, which is not supported")
    for key, value in sorted(config.items()):
        if value and key not in READ | NOT_MEANT:  # off is false, none, empty or 0, in all of them
            raise ModelFolderError(f"{path} sets {key} to {value!r}, which is not supported")
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not positive_whole(rank) or not positive(alpha):
        raise ModelFolderError(f"{path} has r {rank!r}, lora_alpha {alpha!r}: wanted numbers > 0")
    if not isinstance(config.get("target_modules"), str | list) or not config["target_modules"]:
        raise ModelFolderError(
            f"{path} has target_modules {config.get('target_modules')!r}: wanted names or a pattern"
        )
    return config


def targeted(config: Mapping[str, Any], name: str) -> bool:
    """Whether the module `name` is adapted, as peft decides it."""
    modules = config["target_modules"]
    if matches(config.get("exclude_modules") or [], name):
        return False
    if isinstance(modules, str) or name in modules:
        return matches(modules, name)
    layers = config.get("layers_to_transform")
    if layers is None or layers == []:
        return matches(modules, name)
    patterns = config.get("layers_pattern") or [r"[^.]*"]
    number = next(filter(None, (layer_number(p, name) for p in listed(patterns))), None)
    return number is not None and int(number) in listed(layers) and matches(modules, name)


def matches(modules: str | Iterable[str], name: str) -> bool:
    if isinstance(modules, str):
        return re.fullmatch(modules, name) is not None
    return any(name == module or name.endswith(f".{module}") for module in modules)


def layer_number(pattern: str, name: str) -> str | None:
    """The first numbered part of a dotted name after a part that is `pattern`."""
    found = re.match(rf"(?:^|.*?\.){pattern}\.(?P<number>\d+)\.", name)
    return found["number"] if found else None


def listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]


def adapter_tensors(folder: Path) -> dict[str, dict[str, Tensor]]:
    """Module name -> "A" and "B". Raises ModelFolderError."""
    path = folder / WEIGHTS
    if not path.is_file():
        raise ModelFolderError(f"{folder} holds no {WEIGHTS}: save the adapter as safetensors")
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ModelFolderError(f"{path} cannot be read: {error}") from error
    found: dict[str, dict[str, Tensor]] = {}
    for name, tensor in sorted(tensors.items()):
        told = TENSOR.fullmatch(name)
        if told is None:
            raise ModelFolderError(f"{path} holds {name}: wanted LoRA matrices of linear layers")
        if not tensor.is_floating_point() or not bool(torch.isfinite(tensor).all()):
            raise ModelFolderError(f"{path}: {name} holds numbers that are not finite")
        found.setdefault(told["module"], {})[told["side"]] = tensor.to(
            torch.float32, copy=True
        )  # no view of the file
    for name, sides in found.items():
        if set(sides) != {"A", "B"}:
            raise ModelFolderError(f"{path} holds only lora_{next(iter(sides))} of {name}")
    return found


def compare_names(folder: Path, wanted: set[str], found: Iterable[str]) -> None:
    """Configuration and weights must name the same modules. Raises ModelFolderError."""
    foreign = sorted(set(found) - wanted)
    missing = sorted(wanted - set(found))
    if foreign:
        raise ModelFolderError(
            f"{folder} does not fit this model: it has weights for {foreign[0]} "
            f"({len(foreign)} such), which this model has not, or {CONFIG} does not target"
        )
    if missing or not wanted:
        what = f"weights for {missing[0]} ({len(missing)} such)" if missing else "any layer"
        raise ModelFolderError(f"{folder} does not fit this model: it lacks {what}")


def matrices(
    folder: Path, config: Mapping[str, Any], name: str, sides: Mapping[str, Tensor], at: nn.Linear
) -> Lora:
    """The two matrices of module `name`, checked against it. Raises ModelFolderError."""
    rank = by_pattern(config.get("rank_pattern"), name, config["r"])
    alpha = by_pattern(config.get("alpha_pattern"), name, config["lora_alpha"])
    if not positive_whole(rank) or not positive(alpha):
        raise ModelFolderError(f"{folder}: rank {rank!r}, alpha {alpha!r} of {name}: wanted > 0")
    got = (tuple(sides["A"].shape), tuple(sides["B"].shape))
    wanted = ((rank, at.in_features), (at.out_features, rank))
    if got != wanted:
        raise ModelFolderError(
            f"{folder} does not fit this model: the matrices of {name} are {got}, wanted {wanted}"
        )
    scaling = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    return Lora(sides["A"], sides["B"] * scaling)


def by_pattern(patterns: Mapping[str, Any] | None, name: str, default: Any) -> Any:
    """The first pattern that a dotted name ends in decides, as peft reads rank_pattern."""
    for pattern, value in (patterns or {}).items():
        if re.match(rf"(.*\.)?({pattern})$", name):
            return value
    return default


def positive(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value > 0


def positive_whole(value: Any) -> bool:
    return isinstance(value, int) and value > 0
