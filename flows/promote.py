"""Make a registered pair the champion, if it passed and nothing overtook it. Started by hand, or by
the reconcile where a retrain could not promote what it made: it does that itself, in its last
step."""

from __future__ import annotations

from typing import Any

from prefect import flow, get_run_logger
from prefect.artifacts import create_markdown_artifact

from configuration.settings import Settings
from flows.line import settings, store


@flow(name="promote", retries=2, retry_delay_seconds=5, timeout_seconds=300.0)
def promote(
    pairing: str, version: int, expect: int | None, by_hand: bool = True, force: str = ""
) -> dict[str, Any]:
    """Move the alias `champion` of `pairing` to `version`; a pair that is champion stays so.

    `expect` is the champion that it may replace (None: there is none). What is not asked for
    `by_hand` leaves a release that users are to stay on alone. `force` is the reason for a pair
    that did not pass or was left once.
    """
    result = move_champion(
        settings(), pairing, version, expect=expect, by_hand=by_hand, force=force
    )
    get_run_logger().info(result["statement"])
    create_markdown_artifact(f"**{pairing}** {result['statement']}", key="promotion")
    return result


def move_champion(
    found: Settings,
    pairing: str,
    version: int,
    *,
    expect: int | None,
    by_hand: bool = False,
    force: str = "",
) -> dict[str, Any]:
    """The registry's compare-and-set; overtaken by another champion is a "no" and moves nothing."""
    from registry.promotion import promote as move

    moved = move(store(found), pairing, version, expect=expect, by_hand=by_hand, force=force)
    return {"version": version, "promoted": moved.ok, "statement": moved.statement}
