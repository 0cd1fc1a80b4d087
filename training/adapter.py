"""A LoRA adapter merged into its base model: a release of its own, as full weights.

The merging is peft's (Hu et al. 2021, arXiv 2106.09685). The folder carries the record of what it
was merged from from the moment it is there: merged bytes are no identity, so a folder without it
would be another release on each machine.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from registry.adapters import MERGE_RECORD, fingerprint_adapter, record_merge
from registry.folders import json_of
from registry.room import bytes_of
from speculation.target import ModelFolderError, read_config

ROOM = 1.1  # free bytes that a merge wants, over those of its base


def merge(base: Path, adapter: Path, out: Path) -> Path:
    """Write `base` with `adapter` merged into it to the folder `out`; at once if it is there.

    Tokenizer, chat template and generation defaults are the base's. Raises ModelFolderError, and
    OSError where the disk has no room.
    """
    if (out / "config.json").is_file():
        return _as_recorded(base, adapter, out)
    if not (adapter / "adapter_config.json").is_file():
        raise ModelFolderError(
            f"{adapter} holds no adapter_config.json: wanted a LoRA adapter as peft saves it"
        )
    if not (adapter / "adapter_model.safetensors").is_file():
        raise ModelFolderError(
            f"{adapter} holds no adapter_model.safetensors: save the adapter as safetensors"
        )
    read_config(base)
    if (base / MERGE_RECORD).exists():
        raise ModelFolderError(
            f"{base} is merged itself, and merged bytes are no identity: merge into its own base, "
            f"or delete its {MERGE_RECORD} to have it taken as it is"
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    _check_room(base, out.parent)
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
        # the base's own configuration, too: as saved anew it could mean another release
        if path.is_file() and not weights:
            shutil.copy2(path, unfinished / path.name)
    record_merge(unfinished, base=base, adapter=adapter)
    os.replace(unfinished, out)
    return out


def _as_recorded(base: Path, adapter: Path, out: Path) -> Path:
    """The folder `out`, which is there already: of this adapter, or none of ours to give."""
    record = json_of(out, MERGE_RECORD)
    if record is None:  # of a time when merging and recording were two steps
        record_merge(out, base=base, adapter=adapter)
    elif record.get("adapter") != fingerprint_adapter(adapter):
        raise ModelFolderError(f"{out} holds another adapter's merge: choose another folder")
    return out


def _check_room(base: Path, beside: Path) -> None:
    wanted, free = int(ROOM * bytes_of(base)), shutil.disk_usage(beside).free
    if free < wanted:
        raise OSError(errno.ENOSPC, f"a merge wants {wanted} bytes, {free} are free", str(beside))
