"""Where a pairing's configuration, work and stores are, for every flow. Reads the environment that
the worker set; knows nothing of Prefect."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from configuration.reading import read_settings
from configuration.settings import Pairing, Settings

if TYPE_CHECKING:
    from registry.store import Store


def settings() -> Settings:
    """The settings of the home that PACELINE_HOME names."""
    return read_settings(Path(os.environ.get("PACELINE_HOME", "paceline-home")), environ=os.environ)


def configured(name: str) -> tuple[Settings, Pairing]:
    """The settings and the pairing of that name. Raises ConfigurationError where there is none."""
    found = settings()
    return found, found.pairing(name)


def store(found: Settings) -> Store:
    """The registry. Its secret is shown by whatever process runs a flow, an operator's own too."""
    from registry.credentials import for_mlflow
    from registry.store import Store

    for_mlflow(found.registry_token, os.environ)
    return Store(found.registry_url)


def device() -> str:
    """Where flows compute: a CUDA GPU where there is one (CUDA_VISIBLE_DEVICES= hides it)."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def work_folder(home: Path, pairing: str, release: str, cause: str = "release") -> Path:
    """Where the steps for one release leave their files and markers; an alarm has its own."""
    folder = home / "work" / pairing / release[:12]
    return folder if cause == "release" else folder / cause
