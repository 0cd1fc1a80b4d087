"""Whether a target can be held at all by the device that trains and measures here."""

from __future__ import annotations

from pathlib import Path

from registry.room import host_bytes, misfit
from speculation.target import ModelFolderError


def check_fits(target: Path) -> Path:
    """The folder again. Raises ModelFolderError where its weights alone are more than all memory
    of the GPU, or of the host where there is none; what is free now may be more in a minute."""
    import torch

    held: int | None
    if torch.cuda.is_available():
        where, held = "GPU", torch.cuda.get_device_properties(0).total_memory
    else:
        where, held = "machine", host_bytes()
    why = misfit(target, held, have="are there in all")
    if why:
        raise ModelFolderError(f"{target} does not fit the {where} that trains here: {why}")
    return target
