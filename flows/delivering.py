"""Carries what is to be told of alarms to people: a Prefect event and a signed webhook.

The outbox says what is due on which channel and remembers how it went. One channel that fails, and
one notice that cannot be sent, stop no other. What answers an alarm is `flows/alarms.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, uuid5

from prefect.events import emit_event

from flows.telling import tell
from monitoring.notices import Notice, Phase
from monitoring.outbox import Outbox
from monitoring.payloads import of_notice
from monitoring.webhook import Outcome, Sent, post

if TYPE_CHECKING:
    import logging

    from configuration.settings import Settings

KEPT_SECONDS = 30 * 86_400.0  # of what was told and responded to
MOST_A_LOOK = 20  # notices of a channel: a receiver that hangs holds a look no longer
FAILURES_A_LOOK = 3  # then the receiver is left alone until the next one
SUFFIX = {Phase.RAISED: "", Phase.AGAIN: ".again", Phase.RESOLVED: ".resolved"}
Send = Callable[..., Sent]


def deliver_notices(
    found: Settings,
    *,
    logger: logging.Logger | logging.LoggerAdapter[Any],
    now: float | None = None,
    send: Send = post,
    emit: Callable[..., object] = emit_event,
) -> dict[str, int]:
    """How many went out, by channel."""
    now = time.time() if now is None else now
    outbox = Outbox(found.home / "monitoring" / "outbox")
    sent = {"event": 0, "webhook": 0}
    for channel in sent:
        if channel == "webhook" and not found.notices.webhook:
            continue
        failures = 0
        for notice in outbox.due(channel, now=now)[:MOST_A_LOOK]:
            why = _event(notice, emit) if channel == "event" else None
            if channel == "webhook":
                why = _webhook(found, outbox, notice, now, send, logger)
            if why is None:
                outbox.delivered(notice.id, channel)
                sent[channel] += 1
                if channel == "event" and found.notices.block:
                    _to_block(found, notice)
                continue
            outbox.failed(notice.id, channel, why, now=now)
            logger.warning("%s could not be told by %s: %s", notice.id, channel, why)
            failures += 1
            if failures >= FAILURES_A_LOOK:
                break
    outbox.prune(now - KEPT_SECONDS)
    return sent


def _to_block(found: Settings, notice: Notice) -> None:
    """Have `flows/telling.py` tell a notification block of it too."""
    alarm = notice.alarm
    title = f"{alarm.cause} {notice.phase}: pair {alarm.pair or 'none'}"
    key = f"alarm:{notice.id}"
    tell(found.home, key, title, alarm.statement, pairing="", channels=("block",))


def _event(notice: Notice, emit: Callable[..., object]) -> str | None:
    """Why it did not go out; None where it did. Its id is fixed, so that twice is once."""
    alarm = notice.alarm
    try:
        emit(
            event=f"paceline.alarm.{alarm.cause}{SUFFIX[notice.phase]}",
            resource={"prefect.resource.id": f"paceline.pair.{alarm.pair or 'none'}"},
            payload=notice.to_json()["alarm"],
            id=uuid5(NAMESPACE_URL, f"paceline:{notice.id}"),
        )
    except Exception as error:  # Prefect's client, away or full: told again with the next look
        return f"{type(error).__name__}: {error}"
    return None


def _webhook(
    found: Settings,
    outbox: Outbox,
    notice: Notice,
    now: float,
    send: Send,
    logger: logging.Logger | logging.LoggerAdapter[Any],
) -> str | None:
    answer = outbox.response(notice.alarm.id) or {}
    body = of_notice(notice, style=found.notices.style, done=str(answer.get("done", "")))
    went = send(
        found.notices.webhook,
        body,
        id=notice.id,
        at=now,
        secret=found.notice_secret,
        hosts=found.notices.hosts,
    )
    if went.outcome is Outcome.NEVER:
        logger.error("the receiver of notices is gone (%s): take it out of paceline.toml", went.why)
    return went.why if went.outcome is Outcome.AGAIN else None
