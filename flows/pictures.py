"""Pictures of a run, drawn as files and shown in Prefect's pages."""

from __future__ import annotations

import base64
from pathlib import Path

from prefect import get_run_logger
from prefect.artifacts import create_image_artifact

LARGEST = 400_000  # bytes; the picture travels inside the artifact, so that it needs no server


def show_picture(path: Path | None, *, key: str, description: str | None = None) -> str | None:
    """Show a PNG as an artifact of the run; returns why it is not shown, None where it is.

    Where there is no picture there is nothing to say.
    """
    if path is None or not path.is_file():
        return None
    if (size := path.stat().st_size) > LARGEST:
        why = f"{path} has {size:,} bytes, {LARGEST:,} can be shown here: open the file"
        get_run_logger().warning("not shown: %s", why)
        return why
    inside = base64.b64encode(path.read_bytes()).decode("ascii")
    create_image_artifact(f"data:image/png;base64,{inside}", key=key, description=description)
    return None


def show_pictures(folder: Path, *, prefix: str) -> str:
    """Show every PNG of a folder; returns in Markdown where each is found. Empty without any.

    A Markdown artifact cannot hold them, so it says by this text where they are.
    """
    said = []
    for path in sorted(folder.glob("*.png")):
        key = f"{prefix}-{path.stem}".lower().replace("_", "-")
        left_out = show_picture(path, key=key)
        where = f"artifact `{key}` of this run" if left_out is None else left_out
        said.append(f"- {path.stem}: {where}")
    return "\n".join(["", "## Pictures", "", *said, ""]) if said else ""


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
