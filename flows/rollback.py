"""Go back to an earlier pair of the release that is serving, or to a draft that needs no making.
Started by hand from Prefect's pages; `paceline rollback` does the same without them."""

from __future__ import annotations

from typing import Any

from prefect import flow, get_run_logger
from prefect.artifacts import create_markdown_artifact

from flows.line import settings, store
from flows.telling import tell
from speculation.records import WITHOUT_WEIGHTS


@flow(name="rollback", retries=2, retry_delay_seconds=5, timeout_seconds=300.0)
def rollback(
    pairing: str, to: str = "", reason: str = "by hand", leave: int | None = None
) -> dict[str, Any]:
    """Leave the champion of `pairing` for `to`: a version's number, "ngram" or "none"; left out,
    for the best earlier pair. `leave` is the champion that is meant, where it may have changed."""
    from registry.promotion import rollback as move
    from registry.standing_in import fall_back

    if to and to not in WITHOUT_WEIGHTS and not (to.isdecimal() and to.isascii() and int(to) > 0):
        raise ValueError(f"got to = {to!r}, wanted a version's number, ngram, none, or nothing")
    found = settings()
    found.pairing(pairing)  # it is one of this home
    registry = store(found)
    if to in WITHOUT_WEIGHTS:
        moved = fall_back(registry, pairing, to, reason=reason, leave=leave)
    else:
        number = int(to) if to else None
        moved = move(registry, pairing, to=number, leave=leave, reason=reason)
    get_run_logger().info(moved.statement)
    create_markdown_artifact(f"**{pairing}**: {moved.statement}.", key="rollback")
    if moved.ok and moved.champion is not None:
        key = f"rollback:{pairing}:{leave}:{moved.champion.version}:{reason}"
        tell(found.home, key, f"{pairing}: rolled back", moved.statement, pairing=pairing)
    version = None if moved.champion is None else moved.champion.version
    return {"version": version, "moved": moved.ok, "statement": moved.statement}
