"""Whether anybody still wants what a retrain makes: a newer release makes an older one's pair
useless, and hours of computing with it. Asked between the steps; knows nothing of Prefect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from configuration.settings import Settings
from flows.line import store

SUPERSEDED = "SUPERSEDED"  # an outcome's phase where nothing was judged


def superseded(settings: Settings, pairing: str, plan: Mapping[str, Any]) -> str:
    """What came instead, as a sentence; empty while the plan's release is the newest one, or the
    one that users are to stay on. Releases are compared by digest: two hosts that announce one at
    once may have given it two numbers."""
    registry = store(settings)
    newest = max(registry.releases(pairing), key=lambda one: one.version, default=None)
    if newest is None or newest.digest == plan["release"]:
        return ""
    pinned = registry.pinned(pairing)
    if pinned is not None and pinned.digest == plan["release"]:
        return ""
    return (
        f"release {newest.version} came meanwhile and supersedes release {plan['version']}, for "
        "which nothing more is made"
    )


def outcome(why: str, phase: str = SUPERSEDED) -> dict[str, Any]:
    """How a retrain ends that makes nothing: nothing is registered."""
    return {"version": None, "phase": phase, "promoted": False, "statement": why}
