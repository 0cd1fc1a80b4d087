"""The operator's hand on what is served: another drafter of the loaded ones, another K.

Knows which drafters there are; the engine's thread does it. A swap starts from the settings again.
"""

from __future__ import annotations

from serving.fields import BadRequest
from serving.loading import Loaded
from serving.service import Service, UnavailableError
from serving.settings import MOST_DRAFTED


async def steered(
    service: Service, drafter: str | None, draft_len: int | None, *, said: bool
) -> None:
    """Let requests draft with `drafter` from now on; None: with the one that is.

    `draft_len` is K from now on, and None lets it adapt; not `said`, it stays. Requests that run go
    on as they began. Raises BadRequest, UnavailableError.
    """
    steering: Loaded | None = None
    while steering is None or steering is not service.worker.current:  # swapped meanwhile
        steering = service.worker.current
        await _turned(service, steering, drafter, draft_len, said=said)


async def _turned(
    service: Service,
    loaded: Loaded | None,
    drafter: str | None,
    draft_len: int | None,
    *,
    said: bool,
) -> None:
    if loaded is None:
        raise UnavailableError("no pair is loaded yet", 5)
    if drafter is not None and drafter not in loaded.arms:
        raise BadRequest(f"drafter: wanted one of {', '.join(loaded.arms)}", "drafter")
    if draft_len is not None and not 0 <= draft_len <= MOST_DRAFTED:
        raise BadRequest(f"draft_len: wanted 0 to {MOST_DRAFTED}, or null to adapt", "draft_len")
    if said and draft_len is None and not loaded.paced:
        raise BadRequest(
            f"draft_len: K does not adapt on this server: wanted 0 to {MOST_DRAFTED}", "draft_len"
        )

    def turn() -> None:
        length = draft_len if said else None if loaded.adaptive else loaded.draft_len
        loaded.steer(loaded.default.name if drafter is None else drafter, length)

    await service.worker.call(turn)
