"""A pair that a person looked at and left: it is not asked about again, and never goes live by
itself. Promoting it by hand stays possible."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from registry.store import Store

LEFT = "paceline.left"  # tag: why a person who was asked left the pair as it is


def leave(store: Store, pairing: str, version: int, why: str) -> None:
    """Mark the pair. May be said twice; the last reason stays."""
    from registry.door import speaking

    with speaking(store.url, f"leaving v{version} of {pairing}"):
        store.client.set_model_version_tag(pairing, str(version), LEFT, why)
