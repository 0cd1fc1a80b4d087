"""Pictures of a run, drawn as files and shown in Prefect's pages."""

from __future__ import annotations

import base64
from pathlib import Path

from prefect.artifacts import create_image_artifact

LARGEST = 400_000  # bytes; the picture travels inside the artifact, so that it needs no server


def show_picture(path: Path | None, *, key: str, description: str | None = None) -> None:
    """Show a PNG as an artifact of the run; nothing where there is none, or it is too large."""
    if path is None or not path.is_file() or path.stat().st_size > LARGEST:
        return
    inside = base64.b64encode(path.read_bytes()).decode("ascii")
    create_image_artifact(f"data:image/png;base64,{inside}", key=key, description=description)


def curves_picture(folder: Path) -> Path | None:
    """folder/curves.png from folder/curves.json; None where there is nothing to draw."""
    import json

    try:
        curves = json.loads((folder / "curves.json").read_text())
    except (OSError, ValueError):
        return None
    if not curves:
        return None
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.2), layout="constrained")
    left = figure.subplots()
    epochs = [point["epoch"] for point in curves]
    left.plot(epochs, [point["loss"] for point in curves], color="tab:gray", label="loss")
    left.set(xlabel="epoch", ylabel="training loss")
    right = left.twinx()
    acceptance = [point["validation_acceptance"] for point in curves]
    right.plot(epochs, acceptance, color="tab:blue", marker="o", label="acceptance")
    right.set(ylabel="acceptance, held-out responses", ylim=(0, 1))
    figure.savefig(folder / "curves.png", dpi=110)
    return folder / "curves.png"
