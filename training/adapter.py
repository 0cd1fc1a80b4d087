"""A LoRA adapter merged into its base model: a release of its own, as full weights.

The merging is peft's (Hu et al. 2021, arXiv 2106.09685).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from speculation.target import ModelFolderError, read_config


def merge(base: Path, adapter: Path, out: Path) -> Path:
    """Write `base` with `adapter` merged into it to the folder `out`; at once if it is there.

    Tokenizer, chat template and generation defaults are the base's. Raises ModelFolderError.
    """
    if (out / "config.json").is_file():
        return out
    if not (adapter / "adapter_config.json").is_file():
        raise ModelFolderError(
            f"{adapter} holds no adapter_config.json: wanted a LoRA adapter as peft saves it"
        )
    if not (adapter / "adapter_model.safetensors").is_file():
        raise ModelFolderError(
            f"{adapter} holds no adapter_model.safetensors: save the adapter as safetensors"
        )
    read_config(base)
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        base, dtype="auto", local_files_only=True, use_safetensors=True
    )
    try:
        merged = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
    except (RuntimeError, ValueError) as error:
        raise ModelFolderError(f"{adapter} does not fit {base}: {error}") from error
    unfinished = out.with_name(out.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    merged.save_pretrained(unfinished)
    for path in base.iterdir():
        weights = path.suffix == ".safetensors" or path.name.endswith(".index.json")
        if path.is_file() and not weights and not (unfinished / path.name).exists():
            shutil.copy2(path, unfinished / path.name)
    os.replace(unfinished, out)
    return out
