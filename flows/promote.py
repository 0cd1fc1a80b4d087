"""Make a registered pair the champion, if it passed and nothing overtook it. Started by hand: a
retrain promotes what it made itself, in its last step."""

from __future__ import annotations

from typing import Any

from prefect import flow, get_run_logger
from prefect.artifacts import create_markdown_artifact

from configuration.settings import Settings
from flows.line import settings, store


@flow(name="promote", retries=2, retry_delay_seconds=5)
def promote(pairing: str, version: int, expect: int | None) -> dict[str, Any]:
    """Move the alias `champion` of `pairing` to `version`; a pair that is champion stays so.

    `expect` is the champion that it was judged against (None: there was none).
    """
    result = move_champion(settings(), pairing, version, expect=expect, by_hand=True)
    get_run_logger().info(result["statement"])
    create_markdown_artifact(f"**{pairing}** {result['statement']}", key="promotion")
    return result


def move_champion(
    found: Settings, pairing: str, version: int, *, expect: int | None, by_hand: bool = False
) -> dict[str, Any]:
    """The registry's compare-and-set; overtaken by another champion is a "no" and moves nothing."""
    from registry.promotion import promote as move

    moved = move(store(found), pairing, version, expect=expect, by_hand=by_hand)
    return {"version": version, "promoted": moved.ok, "statement": moved.statement}
