"""A picture that belongs to a registered pair and was drawn after it: put on the pair's run."""

from __future__ import annotations

from pathlib import Path

from registry.door import speaking
from registry.store import Store


def log_picture(store: Store, run_id: str, picture: Path, *, folder: str = "loop") -> None:
    """Show `picture` among the run's artifacts; the same name is written over."""
    with speaking(store.url, f"logging {picture.name}"):
        store.client.log_artifact(run_id, str(picture), folder)
