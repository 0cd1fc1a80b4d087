"""Make a registered pair the champion, if it passed and nothing overtook it."""

from __future__ import annotations

from typing import Any

from prefect import flow, get_run_logger
from prefect.artifacts import create_markdown_artifact

from flows.line import settings, store


@flow(name="promote", retries=2, retry_delay_seconds=5)
def promote(pairing: str, version: int) -> dict[str, Any]:
    """Move the alias `champion` of `pairing` to `version`; a pair that is champion stays so."""
    result = move_champion(pairing, version)
    get_run_logger().info(result["statement"])
    create_markdown_artifact(f"**{pairing}** {result['statement']}", key="promotion")
    return result


def move_champion(pairing: str, version: int) -> dict[str, Any]:
    """The registry's compare-and-set, from the champion that is there now."""
    from registry.promotion import promote as move

    registry = store(settings())
    before = registry.champion(pairing)
    moved = move(registry, pairing, version, expect=None if before is None else before.version)
    return {"version": version, "promoted": moved.ok, "statement": moved.statement}
